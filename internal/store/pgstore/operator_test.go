package pgstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// older is how many columns a daemon of the first migration knows: it reads and writes no
// others.
const older = 28

// writeAsOlder writes a record as a daemon of the first migration does.
func writeAsOlder(t *testing.T, dsn string, a reservation.Address, revision int64, rec *reservation.Record) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var r rows
	r.add(a, revision, rec)
	columns := append(keyColumns(), recordColumns()[:older]...)
	statement := fmt.Sprintf("INSERT INTO idemd.reservations (%s) SELECT %s FROM unnest(%s) AS w (%s) ON CONFLICT (tenant, namespace, key) DO UPDATE SET %s",
		join(columns, named), join(columns, written),
		join(columns, func(i int, c column) string { return fmt.Sprintf("$%d::%s[]", i+1, c.kind) }), join(columns, named),
		join(recordColumns()[:older], func(_ int, c column) string { return c.name + " = excluded." + c.name }))
	if _, err := conn.Exec(t.Context(), statement, r.arguments()[:len(columns)]...); err != nil {
		t.Fatal(err)
	}
}

// A daemon of before may serve beside this one. It leaves this one's columns as they were:
// what belongs to an earlier life of a key, or to an earlier result, must pass for nothing.
func TestWhatAnOlderDaemonLeavesInItsRowsIsPassedOver(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, fmt.Sprintf(frozen, storetest.Start))
	s := openStore(t, Options{DSN: server.DSN(database)})
	now := storetest.Start
	advance := func(to reservation.Time) {
		now = to
		must(t, server, database, fmt.Sprintf("UPDATE idemd.frozen_clock SET now = %d", now))
	}
	apply := func(commands ...reservation.Command) {
		t.Helper()
		for i, outcome := range s.Apply(t.Context(), commands) {
			if err, refused := outcome.(*reservation.Error); refused {
				t.Fatalf("command %d: %v", i, err)
			}
		}
	}
	ageing, erased, failed := storetest.At("ageing"), storetest.At("erased"), storetest.At("failed")
	complete := storetest.Complete(ageing, 1, "first life")
	complete.BodyRetention = storetest.BodyRetention
	fail := storetest.Fail(failed, 1, reservation.ToldRetryable, "first attempt")
	apply(
		storetest.Reserve(ageing, 1, storetest.Traced), storetest.Reserve(erased, 1, storetest.Traced), storetest.Reserve(failed, 1),
		complete, storetest.Complete(erased, 1, "first life"), fail,
	)
	advance(now + 1)
	apply(storetest.Erase(erased), storetest.Erase(failed))

	// The older daemon: a new life for two of them, another attempt for the third.
	live := func(a reservation.Address, n int, from *reservation.Record) *reservation.Record {
		rec, _ := reservation.Decide(now, from, storetest.Reserve(a, n))
		rec, _ = reservation.Decide(now+1, rec, storetest.Complete(a, n, "second"))
		return rec
	}
	second := live(failed, 2, get(t, s, failed))
	advance(now + 2)
	writeAsOlder(t, server.DSN(database), failed, 9, second)
	if rec := get(t, s, failed); rec.ErasedAt != 0 || rec.State != reservation.Succeeded {
		t.Errorf("the second attempt is read as %+v", rec)
	}
	advance(now.Add(storetest.Retention))
	for _, a := range []reservation.Address{ageing, erased} {
		writeAsOlder(t, server.DSN(database), a, 9, live(a, 2, get(t, s, a)))
	}
	advance(now + 2)
	want := storetest.Answer("second")
	swept, err := s.Sweep(t.Context(), 100)
	if err != nil || swept.Stripped != 0 || swept.More {
		t.Errorf("a sweep takes out bodies of others: %+v (%v)", swept, err)
	}
	for _, a := range []reservation.Address{ageing, erased} {
		rec := get(t, s, a)
		if rec == nil || rec.Trace != (reservation.TraceContext{}) || rec.ErasedAt != 0 || rec.BodyExpiresAt() != 0 || string(rec.Result.Body) != string(want.Body) {
			t.Errorf("%v is read as %+v %+v", a, rec, rec.Result)
		}
	}
	if _, held := s.Apply(t.Context(), []reservation.Command{storetest.Erase(erased)})[0].(*reservation.Recorded); !held {
		t.Error("what was written since can't be erased")
	}
	left := must(t, server, database, "SELECT count(*) FROM idemd.reservations WHERE body_expires_at IS NOT NULL")
	if left[0][0] != "0" {
		t.Errorf("the sweeper leaves %s entries that no body stands behind", left[0][0])
	}
}

// Acts come in the order of their commits, whoever does them: ids have no gaps, and none is
// ever below one that was seen.
func TestActsOfRivalsHaveIdsWithoutGaps(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	const daemons, rounds, batch = 4, 12, 5
	stores := make([]*Store, daemons)
	for i := range stores {
		stores[i] = openStore(t, Options{DSN: server.DSN(database)})
	}
	together(daemons, func(n int) {
		for round := range rounds {
			var finish, erase []reservation.Command
			for i := range batch {
				a := storetest.At(fmt.Sprintf("k-%d-%d-%d", n, round, i))
				finish = append(finish, storetest.Reserve(a, n), storetest.Complete(a, n, ""))
				erase = append(erase, storetest.Erase(a))
			}
			stores[n].Apply(context.Background(), finish)
			before := newest(t, stores[n])
			for i := range erase {
				for outcome := stores[n].Apply(context.Background(), erase[i:i+1])[0]; ; {
					if _, recorded := outcome.(*reservation.Recorded); recorded {
						break
					}
					if err, refused := outcome.(*reservation.Error); refused && !store.IsBusy(outcome) {
						t.Errorf("refused: %v", err)
						return
					}
					outcome = stores[n].Apply(context.Background(), erase[i:i+1])[0]
				}
			}
			if after := newest(t, stores[n]); after < before+batch {
				t.Errorf("after %d acts of its own the newest is %d, it was %d", batch, after, before)
			}
		}
	})
	report, err := stores[0].Check(t.Context())
	if err != nil || report.FaultCount != 0 || newest(t, stores[0]) != daemons*rounds*batch {
		t.Errorf("Check: %+v (%v); the newest act is %d", report, err, newest(t, stores[0]))
	}
	must(t, server, database, "DELETE FROM idemd.audit WHERE id = 7")
	if report, err = stores[0].Check(t.Context()); err != nil || report.FaultCount != 1 {
		t.Errorf("Check does not miss a removed act: %+v (%v)", report, err)
	}
}

func newest(t *testing.T, s *Store) int64 {
	page, err := s.Audit(context.Background(), store.AuditQuery{Limit: 1})
	if err != nil {
		t.Errorf("Audit: %v", err)
		return 0
	}
	if len(page.Entries) == 0 {
		return 0
	}
	return page.Entries[0].ID
}

// A result that can't be decoded is kept with its body, and keeps no other.
func TestADamagedResultStopsNoSweepOfBodies(t *testing.T) {
	h := openWith(t, "")
	for _, key := range []string{"a", "b", "c"} {
		complete := storetest.Complete(storetest.At(key), 1, key)
		complete.BodyRetention = storetest.BodyRetention
		h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At(key), 1)})
		h.Store.Apply(t.Context(), []reservation.Command{complete})
		h.Advance(1000)
	}
	h.Damage(storetest.At("a"))
	h.Advance(storetest.BodyRetention)
	for range 2 {
		if _, err := h.Store.Sweep(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	swept, err := h.Store.Sweep(t.Context(), 100)
	if err != nil || swept.More {
		t.Errorf("%+v (%v)", swept, err)
	}
	for _, key := range []string{"b", "c"} {
		snapshot, err := h.Store.Get(t.Context(), store.Want(storetest.At(key)))
		if err != nil || len(snapshot.Found[0].Record.Result.Body) > 0 {
			t.Errorf("%s keeps its body (%v)", key, err)
		}
	}
}

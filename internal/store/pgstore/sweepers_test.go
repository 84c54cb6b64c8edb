package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func TestASweeperTakesWhatNoOtherIsAt(t *testing.T) {
	h, s, rig := patient(t) // it would wait a minute for another's rows
	const rows, each = 30, 10
	for i := range rows {
		a := storetest.At(fmt.Sprintf("k-%02d", i))
		settle(t, s, storetest.Reserve(a, 1))
		settle(t, s, storetest.Complete(a, 1, ""))
		h.Advance(time.Millisecond)
	}
	h.Advance(storetest.Retention)
	other, err := pgx.Connect(t.Context(), rig.server.DSN(rig.database))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), fmt.Sprintf("SELECT 1 FROM idemd.reservations ORDER BY expires_at LIMIT %d FOR UPDATE", each)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience/2)
	defer cancel()
	for _, want := range []int{each, rows - 2*each, 0} {
		if swept, err := s.Sweep(ctx, each); err != nil || swept.Deleted != want {
			t.Errorf("beside another sweeper: %+v %v, want %d deleted", swept, err, want)
		}
	}
	if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	// What a sweeper that died was at is not forgotten: it is found when a sweep goes from
	// the start again.
	if swept, err := s.Sweep(ctx, rows); err != nil || swept.Deleted != 0 {
		t.Errorf("a sweep that goes on where the last one ended: %+v %v", swept, err)
	}
	s.sweeps.started = s.sweeps.started.Add(-fromTheStart)
	if swept, err := s.Sweep(ctx, rows); err != nil || swept.Deleted != each || swept.More {
		t.Errorf("after it: %+v %v", swept, err)
	}
}

// A sweeper is stopped between its look at an expired record and the deletion, and a
// caller comes for the key.
func TestASweeperThatIsSlowDeletesNothingThatIsInUseAgain(t *testing.T) {
	h, s, rig := patient(t)
	must(t, rig.server, rig.database, `CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$;
		CREATE TRIGGER gate BEFORE DELETE ON idemd.reservations FOR EACH STATEMENT EXECUTE FUNCTION public.gate()`)
	a := storetest.At("again")
	settle(t, s, storetest.Reserve(a, 1))
	settle(t, s, storetest.Complete(a, 1, ""))
	h.Advance(storetest.Retention)
	release := rig.lockGate()
	swept := make(chan error, 1)
	go func() {
		_, err := s.Sweep(context.Background(), 10)
		swept <- err
	}()
	awaitWaiting(t, rig.server, rig.database, 1)
	early := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 2)})[0]
	if !store.IsBusy(early) && !isOwned(early) {
		t.Errorf("beneath the sweeper the caller is answered %T %v", early, early)
	}
	release()
	if err := <-swept; err != nil {
		t.Errorf("Sweep: %v", err)
	}
	owned, granted := settle(t, s, storetest.Reserve(a, 2)).(*reservation.Owned)
	if !granted || owned.Repeated != isOwned(early) {
		t.Errorf("then it is answered %+v; first it was %T", owned, early)
	}
	if rec := get(t, s, a); rec == nil || rec.Owner != "caller-2" {
		t.Errorf("in the end there is %+v", rec)
	}
}

// Four sweepers of two daemons, beneath callers who use each key again as soon as it
// has expired: whatever a sweeper saw, it deletes nothing that is in use.
func TestSweepersOfSeveralDaemonsTakeNothingOfTheCallersAboveThem(t *testing.T) {
	const sweepers, callers, keys, lives = 4, 6, 5, 10
	h, first, rig := patient(t)
	daemons := [2]*Store{first, openStore(t, Options{DSN: rig.server.DSN(rig.database)})}
	stop := make(chan struct{})
	var sweeping sync.WaitGroup
	var deleted atomic.Int64
	for n := range sweepers {
		sweeping.Go(func() {
			for {
				swept, err := daemons[n%2].Sweep(context.Background(), 7)
				if err != nil {
					t.Errorf("Sweep: %v", err)
				}
				deleted.Add(int64(swept.Deleted))
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	for life := range lives {
		together(callers, func(i int) {
			for k := range keys {
				a, token := storetest.At(fmt.Sprintf("k-%d-%d", i, k)), life
				s := daemons[(i+k)%2]
				if outcome := settle(t, s, storetest.Reserve(a, token)); !isOwned(outcome) {
					t.Errorf("life %d of %v begins with %T %v", life, a, outcome, outcome)
				}
				settle(t, s, storetest.Extend(a, token))
				settle(t, s, storetest.Complete(a, token, fmt.Sprint(life)))
				if outcome := settle(t, daemons[(i+k+1)%2], storetest.Reserve(a, -1)); !isReplay(outcome) {
					t.Errorf("life %d of %v ends with %T %v", life, a, outcome, outcome)
				}
			}
		})
		h.Advance(storetest.Retention)
	}
	for more := true; more; {
		swept, err := first.Sweep(context.Background(), 100)
		if err != nil {
			t.Fatal(err)
		}
		deleted.Add(int64(swept.Deleted))
		more = swept.More
	}
	close(stop)
	sweeping.Wait()
	if report, err := first.Check(context.Background()); err != nil || report.FaultCount > 0 || report.Records > 0 {
		t.Errorf("in the end there is %+v %v", report, err)
	}
	if deleted.Load() < callers*keys {
		t.Errorf("only %d records were swept", deleted.Load())
	}
}

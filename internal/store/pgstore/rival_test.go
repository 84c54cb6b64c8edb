package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// twoDaemons opens two stores on one database.
func twoDaemons(t *testing.T) [2]*Store {
	dsn := postgres.Server(t).DSN(postgres.database(t))
	return [2]*Store{openStore(t, Options{DSN: dsn}), openStore(t, Options{DSN: dsn})}
}

func TestOfAHundredEqualCallersOnTwoDaemonsExactlyOneIsGranted(t *testing.T) {
	daemons := twoDaemons(t)
	for round := range 30 {
		a := storetest.At(fmt.Sprint("race-", round))
		var grants, others atomic.Int64
		together(100, func(i int) {
			switch outcome := settle(t, daemons[i%2], storetest.Reserve(a, i)).(type) {
			case *reservation.Owned:
				grants.Add(1)
			case *reservation.InProgress:
				others.Add(1)
			default:
				t.Errorf("caller %d is answered %T %v", i, outcome, outcome)
			}
		})
		if grants.Load() != 1 || others.Load() != 99 {
			t.Fatalf("round %d: %d grants, %d in progress", round, grants.Load(), others.Load())
		}
	}
}

func TestBatchesInOppositeOrdersOnTwoDaemonsEndWithoutDeadlock(t *testing.T) {
	daemons := twoDaemons(t)
	for round := range 100 {
		x, y := storetest.At(fmt.Sprint("x-", round)), storetest.At(fmt.Sprint("y-", round))
		together(4, func(i int) {
			first, second := x, y
			if i%2 == 1 {
				first, second = y, x
			}
			commands := []reservation.Command{storetest.Reserve(first, i), storetest.Reserve(second, i)}
			for _, outcome := range daemons[i%2].Apply(context.Background(), commands) {
				if err, refused := outcome.(*reservation.Error); refused && !store.IsBusy(err) {
					t.Errorf("round %d: %v", round, err)
				}
			}
		})
	}
	rows := must(t, postgres.Server(t), "postgres", "SELECT sum(deadlocks) FROM pg_stat_database")
	if rows[0][0] != "0" {
		t.Errorf("the database broke %s deadlocks", rows[0][0])
	}
}

// patient waits for rivals for as long as it takes, so that a test decides how long.
func patient(t *testing.T) (*storetest.Harness, *Store, *rig) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, fmt.Sprintf(frozen, storetest.Start))
	s := openStore(t, Options{DSN: server.DSN(database), LockTimeout: patience})
	h := &storetest.Harness{Store: s, SetClock: func(now reservation.Time) {
		must(t, server, database, fmt.Sprintf("UPDATE idemd.frozen_clock SET now = %d", now))
	}}
	return h, s, &rig{t: t, server: server, database: database}
}

func TestAfterARivalsInsertThatIsRolledBackALeaseHasItsFullLength(t *testing.T) {
	h, s, rig := patient(t)
	a := storetest.At("k")
	release := rig.hold(a)
	answered := make(chan reservation.Outcome, 1)
	go func() {
		answered <- s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, 1, storetest.LeaseOf(2*time.Second))})[0]
	}()
	awaitWaiting(t, rig.server, rig.database, 1)
	h.Advance(3 * time.Second)
	release()
	owned, granted := (<-answered).(*reservation.Owned)
	if !granted || owned.LeaseExpiresAt != h.Now().Add(2*time.Second) || owned.LeaseRemaining != 2*time.Second {
		t.Fatalf("got %+v, want a lease of 2 s from %d", owned, h.Now())
	}
	if rec := get(t, s, a); rec.ReservedAt != h.Now() {
		t.Errorf("it is stored as reserved before the wait")
	}
}

// awaitWaiting waits until so many sessions of the database wait for a lock.
func awaitWaiting(t testing.TB, server *pgtest.Server, database string, sessions int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		rows := must(t, server, "postgres", fmt.Sprintf(
			"SELECT count(*) FROM pg_stat_activity WHERE datname = '%s' AND wait_event_type = 'Lock'", database))
		if rows[0][0] == strconv.Itoa(sessions) {
			return
		}
	}
	t.Fatalf("there are never %d sessions that wait for a lock", sessions)
}

func TestAHeldKeyCostsItsBatchABoundedWaitWhateverItsPlace(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database)})
	rig := &rig{t: t, server: server, database: database}
	const size = 100
	for _, held := range []int{0, 57, size - 1} {
		var commands []reservation.Command
		for i := range size {
			commands = append(commands, storetest.Reserve(storetest.At(fmt.Sprintf("held-%d-%03d", held, i)), 1))
		}
		release := rig.hold(commands[held].Target())
		outcomes := s.Apply(t.Context(), commands)
		release()
		for i, outcome := range outcomes {
			if _, granted := outcome.(*reservation.Owned); granted == (i == held) {
				t.Errorf("key %d of %d, %d is held: got %T", i, size, held, outcome)
			}
		}
		if !store.IsBusy(outcomes[held]) {
			t.Errorf("the held key is answered %T %v", outcomes[held], outcomes[held])
		}
	}
}

func TestAHeldRowIsPassedOverAtOnce(t *testing.T) {
	_, s, rig := patient(t)
	held, free := storetest.At("held"), storetest.At("free")
	settle(t, s, storetest.Reserve(held, 1))
	release := rig.hold(held)
	defer release()
	// This store would wait for a minute: that it answers shows that it does not wait.
	outcomes := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(held, 2), storetest.Reserve(free, 2), storetest.Lookup(held)})
	if !store.IsBusy(outcomes[0]) || !store.IsBusy(outcomes[2]) {
		t.Errorf("the held row is answered %T, %T", outcomes[0], outcomes[2])
	}
	if _, granted := outcomes[1].(*reservation.Owned); !granted {
		t.Errorf("the free one is answered %T", outcomes[1])
	}
	if _, found := s.Apply(t.Context(), []reservation.Command{storetest.Lookup(held)})[0].(*reservation.Found); !found {
		t.Error("looking needs the lock")
	}
}

func TestEveryWriteDemandsTheRevisionThatWasRead(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database)})
	a := storetest.At("k")
	settle(t, s, storetest.Reserve(a, 1))
	rec := get(t, s, a)
	conn, err := pgx.Connect(t.Context(), server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	write := func(statement string, revision int64) int64 {
		var r rows
		r.add(a, revision, rec)
		tag, err := conn.Exec(t.Context(), statement, r.arguments()...)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	if n := write(s.statements.insert, 1); n != 0 {
		t.Error("an insert overwrites what is there")
	}
	for _, revision := range []int64{1, 3} {
		if n := write(s.statements.update, revision); n != 0 {
			t.Errorf("revision 1 is overwritten by %d", revision)
		}
	}
	if n := write(s.statements.update, 2); n != 1 {
		t.Error("revision 2 does not follow 1")
	}
}

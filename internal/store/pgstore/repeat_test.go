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

// refusing makes the database refuse transactions at their commit. Which of them it
// does is told by a condition on n, the number of the try.
const refusing = `CREATE SEQUENCE public.tries;
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint := nextval('public.tries');
BEGIN
	IF %s THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END IF;
	RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON idemd.reservations
	DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.refuse();`

func TestWhatTheDatabaseRollsBackAsAConflictIsRunAgainWithinTheCall(t *testing.T) {
	for _, code := range []string{serializationFailure, deadlockDetected} {
		server, database := postgres.Server(t), postgres.database(t)
		s := openStore(t, Options{DSN: server.DSN(database)})
		must(t, server, database, fmt.Sprintf(refusing, "n % 3 <> 0", code))
		a := storetest.At("k")
		outcome := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1)})[0]
		if owned, granted := outcome.(*reservation.Owned); !granted || owned.Repeated {
			t.Errorf("%s: Reserve is answered %T %v", code, outcome, outcome)
		}
		outcome = s.Apply(t.Context(), []reservation.Command{storetest.Complete(a, 1, "done")})[0]
		if recorded, done := outcome.(*reservation.Recorded); !done || recorded.Repeated {
			t.Errorf("%s: Complete is answered %T %v", code, outcome, outcome)
		}
		if tries := must(t, server, database, "SELECT last_value FROM public.tries")[0][0]; tries != "6" {
			t.Errorf("%s: %s tries, want 6", code, tries)
		}
	}
}

func TestAConflictThatDoesNotEndIsGivenUp(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database)})
	must(t, server, database, fmt.Sprintf(refusing, "true", serializationFailure))
	outcome := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At("k"), 1)})[0]
	if !store.IsBusy(outcome) {
		t.Errorf("answered %T %v", outcome, outcome)
	}
	if rec := get(t, s, storetest.At("k")); rec != nil {
		t.Errorf("stored is %+v", rec)
	}
}

// A rival has inserted the same key and not committed yet; then it does.
func TestAfterARivalsInsertThatIsCommittedItsRecordAnswers(t *testing.T) {
	_, s, rig := patient(t)
	must(t, rig.server, rig.database, `CREATE FUNCTION public.gate() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.owner = 'caller-1' THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON idemd.reservations
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.gate()`)
	release := rig.lockGate()
	a := storetest.At("k")
	answers := [3]chan reservation.Outcome{}
	for n := 1; n <= 2; n++ {
		answers[n] = make(chan reservation.Outcome, 1)
		go func() {
			answers[n] <- s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, n)})[0]
		}()
		awaitWaiting(t, rig.server, rig.database, n)
	}
	release()
	if first := <-answers[1]; !isOwned(first) {
		t.Errorf("the first is answered %T %v", first, first)
	}
	second := <-answers[2]
	if waits, is := second.(*reservation.InProgress); !is || waits.Owner != "caller-1" {
		t.Errorf("the second is answered %T %v", second, second)
	}
}

func TestWhatOneDaemonHasAnsweredAnotherKnowsAtOnce(t *testing.T) {
	daemons := twoDaemons(t)
	for round := range 50 {
		a := storetest.At(fmt.Sprint("round-", round))
		here, there := daemons[round%2], daemons[1-round%2]
		settle(t, here, storetest.Reserve(a, 1))
		if outcome := settle(t, there, storetest.Reserve(a, 2)); isOwned(outcome) || isReplay(outcome) {
			t.Fatalf("in progress, and answered %T", outcome)
		}
		settle(t, here, storetest.Complete(a, 1, "done"))
		if outcome := settle(t, there, storetest.Reserve(a, 2)); !isReplay(outcome) {
			t.Fatalf("completed, and answered %T %v", outcome, outcome)
		}
	}
}

// A backup or a report that runs for long keeps the database from cleaning up.
func TestAnOldSnapshotChangesNoAnswer(t *testing.T) {
	h, s, rig := patient(t)
	old, err := pgx.Connect(t.Context(), rig.server.DSN(rig.database))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(context.Background())
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM idemd.reservations"} {
		if _, err := old.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	a := storetest.At("hot")
	for life := range 100 {
		if outcome := settle(t, s, storetest.Reserve(a, life)); !isOwned(outcome) {
			t.Fatalf("life %d: Reserve is answered %T %v", life, outcome, outcome)
		}
		settle(t, s, storetest.Extend(a, life))
		settle(t, s, storetest.Complete(a, life, ""))
		if outcome := settle(t, s, storetest.Reserve(a, -1)); !isReplay(outcome) {
			t.Fatalf("life %d: a retry is answered %T %v", life, outcome, outcome)
		}
		h.Advance(storetest.Retention)
		if swept, err := s.Sweep(t.Context(), 10); err != nil || swept.Deleted != 1 || swept.More {
			t.Fatalf("life %d: %+v %v", life, swept, err)
		}
	}
}

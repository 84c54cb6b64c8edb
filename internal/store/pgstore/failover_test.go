package pgstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// pair is a server and the standby that follows it synchronously, each reached first by
// whoever writes.
func pair(t *testing.T) (primary, standby *pgtest.Server, dsn string) {
	t.Helper()
	primary = pgtest.Start(t)
	database := primary.Database(t, "")
	standby = primary.Standby(t)
	return primary, standby, fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		primary.Address(), standby.Address(), database)
}

func TestAfterAFailoverNothingAnsweredIsLostAndNothingIsGrantedTwice(t *testing.T) {
	primary, standby, dsn := pair(t)
	s := openStore(t, Options{DSN: dsn, Migrate: true})
	other := openStore(t, Options{DSN: dsn})
	l := startLoad(t, s, 4, other)
	l.await(100)
	primary.Kill()
	l.awaitRefusal()
	standby.Promote(t)
	l.await(100)
	l.end()
	l.verify()
}

// A commit that stopped waiting for its standby is on the disk of one machine, and visible:
// the same caller asking again must not be told OWNED before the standby has it.
func TestACommitThatStoppedWaitingForItsStandbyIsNotAnswered(t *testing.T) {
	primary, standby, dsn := pair(t)
	s := openStore(t, Options{DSN: dsn, Migrate: true})
	other := openStore(t, Options{DSN: dsn})
	settle(t, s, storetest.Reserve(storetest.At("warm"), 1))
	standby.Kill()
	stop := cancelWaits(t, primary)
	at := storetest.At("k")
	for i, waiting := range []*Store{s, s, other, s, other} {
		if outcome := apply(waiting, storetest.Reserve(at, 1)); !unavailable(outcome) {
			t.Errorf("call %d was answered %+v although no standby has it", i, outcome)
		}
	}
	stop()
	if get(t, s, at) == nil {
		t.Error("the commit is not visible: this test tests nothing")
	}
	primary.Kill()
	start(t, standby)
	standby.Promote(t)
	if owned, is := settle(t, s, storetest.Reserve(at, 2)).(*reservation.Owned); !is || owned.Attempt != 1 {
		t.Errorf("what nobody was told of, and the standby never had, is in the way")
	}
}

// cancelWaits does what an operator does to a database that hangs on its standby.
func cancelWaits(t *testing.T, server *pgtest.Server) (stop func()) {
	stopped := make(chan struct{})
	var canceller sync.WaitGroup
	canceller.Go(func() {
		for {
			select {
			case <-stopped:
				return
			default:
				const cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
				if _, err := server.Exec("postgres", cancel); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	return func() {
		close(stopped)
		canceller.Wait()
	}
}

// apply applies a command once; what a rival holds, such as the one who waits for the
// standby, is tried again for a while.
func apply(s *Store, command reservation.Command) (outcome reservation.Outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for outcome = s.Apply(ctx, []reservation.Command{command})[0]; store.IsBusy(outcome); {
		outcome = s.Apply(ctx, []reservation.Command{command})[0]
	}
	return outcome
}

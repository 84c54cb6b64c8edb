package pgstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// patience bounds waits that end by a signal long before, if all is well.
const patience = time.Minute

// settle applies a command until it is answered: a rival that is busy and a store that
// is away are waited out, as the engine and its callers do.
func settle(t testing.TB, s *Store, command reservation.Command) reservation.Outcome {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		outcome := s.Apply(context.Background(), []reservation.Command{command})[0]
		if !store.IsBusy(outcome) && !unavailable(outcome) {
			return outcome
		}
	}
	t.Errorf("%v is not answered within %v", command.Target(), patience)
	return nil
}

func unavailable(outcome reservation.Outcome) bool {
	err, refused := outcome.(*reservation.Error)
	return refused && err.Reason == reservation.StoreUnavailable
}

// load is callers at work. For each key two callers want to execute; every answer is
// kept, to be compared with what the database holds at the end.
type load struct {
	t     testing.TB
	store *Store
	// others serve every second call, as further daemons on the same database do.
	others []*Store

	stop        chan struct{}
	workers     sync.WaitGroup
	keys, calls atomic.Int64
	unavailable atomic.Int64
	progress    chan struct{} // one for each completed operation
	refused     chan time.Duration

	mu       sync.Mutex
	granted  map[reservation.Address][]int // the callers that were told OWNED
	finished map[reservation.Address]int   // the caller whose Complete was answered
}

func startLoad(t testing.TB, s *Store, workers int, others ...*Store) *load {
	l := &load{
		t: t, store: s, others: others, stop: make(chan struct{}), progress: make(chan struct{}), refused: make(chan time.Duration),
		granted: make(map[reservation.Address][]int), finished: make(map[reservation.Address]int),
	}
	for range workers {
		l.workers.Go(l.work)
	}
	return l
}

func (l *load) work() {
	for {
		select {
		case <-l.stop:
			return
		default:
			l.operation(storetest.At(fmt.Sprint("load-", l.keys.Add(1))))
		}
	}
}

// operation lets two callers contend for a key; who is granted it completes it.
func (l *load) operation(a reservation.Address) {
	var callers sync.WaitGroup
	for n := range 2 {
		callers.Go(func() {
			if _, granted := l.until(storetest.Reserve(a, n)).(*reservation.Owned); !granted {
				return
			}
			l.mu.Lock()
			l.granted[a] = append(l.granted[a], n)
			l.mu.Unlock()
			if _, recorded := l.until(storetest.Complete(a, n, "done")).(*reservation.Recorded); recorded {
				l.mu.Lock()
				l.finished[a] = n
				l.mu.Unlock()
			}
		})
	}
	callers.Wait()
	select {
	case l.progress <- struct{}{}:
	case <-l.stop:
	}
}

// serving is the store that takes the next call.
func (l *load) serving() *Store {
	if n := l.calls.Add(1); len(l.others) > 0 && n%2 == 0 {
		return l.others[0]
	}
	return l.store
}

// until applies a command until it is answered or the load ends.
func (l *load) until(command reservation.Command) reservation.Outcome {
	for {
		outcome := l.serving().Apply(context.Background(), []reservation.Command{command})[0]
		switch {
		case unavailable(outcome):
			l.unavailable.Add(1)
			select {
			case l.refused <- outcome.(*reservation.Error).RetryAfter:
			case <-l.stop:
				return nil
			case <-time.After(time.Millisecond):
			}
		case store.IsBusy(outcome):
		default:
			return outcome
		}
	}
}

// await waits for completed operations.
func (l *load) await(operations int) {
	l.t.Helper()
	deadline := time.After(patience)
	for range operations {
		for waiting := true; waiting; {
			select {
			case <-l.progress:
				waiting = false
			case <-l.refused:
			case <-deadline:
				l.t.Fatal("the load makes no progress")
			}
		}
	}
}

// awaitRefusal waits until a caller is told that the store is unavailable.
func (l *load) awaitRefusal() (retryAfter time.Duration) {
	l.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case <-l.progress:
		case retryAfter = <-l.refused:
			return retryAfter
		case <-deadline:
			l.t.Fatal("nobody was told that the store is away")
		}
	}
}

func (l *load) end() {
	close(l.stop)
	l.workers.Wait()
}

// verify compares every answer with what is stored.
func (l *load) verify() {
	l.t.Helper()
	for a, callers := range l.granted {
		if len(callers) > 1 {
			l.t.Errorf("%v was granted to callers %v", a, callers)
		}
		rec := get(l.t, l.store, a)
		switch n, finished := l.finished[a]; {
		case rec == nil:
			l.t.Errorf("the grant of %v is lost", a)
		case rec.Token != storetest.Token(callers[0]).Digest():
			l.t.Errorf("%v belongs to another than it was granted to", a)
		case finished && (rec.State != reservation.Succeeded || n != callers[0]):
			l.t.Errorf("the completion of %v is lost: it is %v", a, rec.State)
		}
	}
	report, err := l.store.Check(context.Background())
	if err != nil || report.FaultCount > 0 {
		l.t.Errorf("Check: %+v %v", report, err)
	}
}

func get(t testing.TB, s *Store, a reservation.Address) *reservation.Record {
	t.Helper()
	snapshot, err := s.Get(context.Background(), store.Want(a))
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return snapshot.Found[0].Record
}

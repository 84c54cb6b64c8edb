package guardtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Room is an idemd in memory with a client of tenant acme. E is an event of a guard.
type Room[E any] struct {
	Daemon *fakedaemon.Daemon
	Client *idem.Client
	// Ran counts the runs of handlers.
	Ran    atomic.Int32
	Events Events[E]
}

// Open furnishes it, until the test ends.
func (r *Room[E]) Open(t testing.TB, o idem.Options) {
	t.Helper()
	r.Daemon = fakedaemon.New()
	r.Client = Client(t, r.Daemon, o)
}

// Client is one of tenant acme, until the test ends: what it still has to tell to a daemon
// that is away is cut off then.
func Client(t testing.TB, conn grpc.ClientConnInterface, o idem.Options) *idem.Client {
	t.Helper()
	if o.Tenant == "" {
		o.Tenant = "acme"
	}
	c := idem.New(conn, o)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Close(over)
	})
	return c
}

// CountOutcomes counts the Completes and Fails that reach the daemon from now on.
func (r *Room[E]) CountOutcomes() *atomic.Int32 {
	told := &atomic.Int32{}
	r.Daemon.Fault(func(m proto.Message) error {
		switch m.(type) {
		case *idemdv1.CompleteRequest, *idemdv1.FailRequest:
			told.Add(1)
		}
		return nil
	})
	return told
}

// MustHaveTold checks how many outcomes have reached the daemon once the client has nothing
// more to tell. The client is closed then.
func (r *Room[E]) MustHaveTold(t testing.TB, told *atomic.Int32, want int32) {
	t.Helper()
	if err := r.Client.Close(Bounded(t)); err != nil {
		t.Error(err)
	}
	if n := told.Load(); n != want {
		t.Errorf("%d outcomes were told, want %d", n, want)
	}
}

// Bounded is a context that ends before a test that hangs does.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// MustHaveRun checks how often handlers ran.
func (r *Room[E]) MustHaveRun(t testing.TB, want int32) {
	t.Helper()
	if n := r.Ran.Load(); n != want {
		t.Errorf("handlers ran %d times, want %d", n, want)
	}
}

// MustBeStored checks the state at a key.
func (r *Room[E]) MustBeStored(t testing.TB, key string, want idemdv1.State) {
	t.Helper()
	if is := r.Daemon.Record("acme", "", key); is.GetState() != want {
		t.Errorf("stored is %v, want %v", is, want)
	}
}

// Events are what an observer was told.
type Events[E any] struct {
	mu  sync.Mutex
	all []E
}

// Add notes one.
func (e *Events[E]) Add(event E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// Take returns what was noted since the last time.
func (e *Events[E]) Take() []E {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

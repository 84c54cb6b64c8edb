package daemon

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// pinged is a store whose pings are answered by a test.
type pinged struct {
	store.Store
	err error
}

func (s *pinged) Ping(context.Context) error { return s.err }

func TestAStoreThatHasFailedForGoodEndsTheDaemon(t *testing.T) {
	d := &daemon{readiness: newReadiness(&pinged{err: store.ErrFailed}, slog.New(slog.DiscardHandler))}
	go d.readiness.watch(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.wait(ctx); !errors.Is(err, store.ErrFailed) {
		t.Errorf("the daemon ends with %v", err)
	}
	if d.readiness.ready() {
		t.Error("it says that it is ready")
	}
}

func TestReadinessFollowsTheStoreUntilTheDrain(t *testing.T) {
	s := &pinged{Store: storetest.OpenMem(t).Store}
	r := newReadiness(s, slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		err   error
		ready bool
	}{{nil, true}, {store.Unavailable(), false}, {nil, true}} {
		s.err = step.err
		_ = r.ping(t.Context())
		if r.ready() != step.ready {
			t.Errorf("after a ping answered %v it is ready: %v", step.err, r.ready())
		}
	}
	r.drain()
	_ = r.ping(t.Context())
	if r.ready() {
		t.Error("it is ready while it drains")
	}
}

package ttl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// paces is a sweeper's clock: it tells the pauses asked for, and ends them.
type paces struct {
	asked chan time.Duration
	over  chan time.Time
}

func newPaces() paces { return paces{make(chan time.Duration), make(chan time.Time)} }

func (p paces) after(d time.Duration) <-chan time.Time {
	p.asked <- d
	return p.over
}

func (p paces) expect(t *testing.T, want time.Duration) {
	t.Helper()
	if got := <-p.asked; got != want {
		t.Fatalf("the pause is %v, want %v", got, want)
	}
}

func run(t *testing.T, s *Sweeper) paces {
	t.Helper()
	p := newPaces()
	s.Logger, s.After = slog.New(slog.DiscardHandler), p.after
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-p.asked:
		case <-ended:
		}
		<-ended
	})
	return p
}

// fill stores n records that are expired, and one that never will be.
func fill(t *testing.T, h *storetest.Harness, n int) {
	t.Helper()
	for i := range n {
		a := storetest.At(fmt.Sprint("old-", i))
		h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1), storetest.Complete(a, 1, "")})
	}
	h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At("open"), 1)})
	h.Advance(storetest.Retention)
}

func TestTheSweeperIsQuickWhileThereIsWorkAndSlowWhileThereIsNone(t *testing.T) {
	h := storetest.OpenMem(t)
	fill(t, h, 2*batch+1)
	var batches []store.Swept
	p := run(t, &Sweeper{Store: h.Store, Swept: func(s store.Swept) { batches = append(batches, s) }})
	p.expect(t, minPause)
	p.over <- time.Time{}
	p.expect(t, minPause)
	if len(batches) != 3 || batches[0].Deleted != batch || batches[2].Deleted != 1 {
		t.Errorf("swept in batches of %+v", batches)
	}
	for want := 2 * minPause; want < maxPause; want *= 2 {
		p.over <- time.Time{}
		p.expect(t, want)
	}
	p.over <- time.Time{}
	p.expect(t, maxPause)
	p.over <- time.Time{}
	p.expect(t, maxPause)
}

func TestARoundIsBounded(t *testing.T) {
	h := storetest.OpenMem(t)
	fill(t, h, (maxBatches+1)*batch)
	deleted := 0
	p := run(t, &Sweeper{Store: h.Store, Swept: func(s store.Swept) { deleted += s.Deleted }})
	p.expect(t, minPause)
	p.over <- time.Time{}
	p.expect(t, minPause)
	if deleted != maxBatches*batch {
		t.Errorf("one round deleted %d, want %d", deleted, maxBatches*batch)
	}
}

type failing struct {
	store.Store
	times int
}

func (f *failing) Sweep(ctx context.Context, limit int) (store.Swept, error) {
	if f.times > 0 {
		f.times--
		return store.Swept{}, errors.New("the disk is away")
	}
	return f.Store.Sweep(ctx, limit)
}

func TestAFailedSweepIsReportedAndTriedAgain(t *testing.T) {
	h := storetest.OpenMem(t)
	fill(t, h, 3)
	failures, deleted := 0, 0
	p := run(t, &Sweeper{
		Store: &failing{Store: h.Store, times: 2}, Swept: func(s store.Swept) { deleted += s.Deleted },
		Failed: func(error) { failures++ },
	})
	for range 3 {
		<-p.asked
		p.over <- time.Time{}
	}
	<-p.asked
	if failures != 2 || deleted != 3 {
		t.Errorf("%d failures, %d deleted", failures, deleted)
	}
	p.over <- time.Time{}
}

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
	if s.Now == nil {
		s.Now = func() time.Time { return time.Time{} }
	}
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
	p := run(t, &Sweeper{Store: h.Store, Swept: func(s store.Swept, _ time.Duration) { batches = append(batches, s) }})
	for _, want := range []time.Duration{minPause, minRest, minRest, minPause} {
		p.expect(t, want)
		p.over <- time.Time{}
	}
	for want := 2 * minPause; want < maxPause; want *= 2 {
		p.expect(t, want)
		p.over <- time.Time{}
	}
	p.expect(t, maxPause)
	p.over <- time.Time{}
	p.expect(t, maxPause)
	if len(batches) < 3 || batches[0].Deleted != batch || batches[2].Deleted != 1 {
		t.Errorf("swept in batches of %+v", batches)
	}
}

func TestBodiesToTakeOutAreWorkAsRecordsAre(t *testing.T) {
	h := storetest.OpenMem(t)
	for i := range batch + 1 {
		a := storetest.At(fmt.Sprint("ageing-", i))
		h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1), storetest.Ageing(a, 1, "")})
	}
	h.Advance(storetest.BodyRetention)
	stripped := 0
	p := run(t, &Sweeper{Store: h.Store, Swept: func(s store.Swept, _ time.Duration) { stripped += s.Stripped }})
	for _, want := range []time.Duration{minPause, minRest, minPause, 2 * minPause} {
		p.expect(t, want)
		p.over <- time.Time{}
	}
	p.expect(t, 4*minPause)
	if stripped != batch+1 {
		t.Errorf("%d bodies were taken out, want %d", stripped, batch+1)
	}
}

// pacedStore tells of more to sweep, and takes its time.
type pacedStore struct {
	store.Store
	now  time.Time
	took time.Duration
	lag  time.Duration
	idle bool // what is left is held by somebody
}

func (s *pacedStore) Sweep(context.Context, int) (store.Swept, error) {
	s.now = s.now.Add(s.took)
	if s.idle {
		return store.Swept{More: true, Lag: s.lag}, nil
	}
	return store.Swept{Deleted: batch, More: true, Lag: s.lag}, nil
}

func TestASweeperDoesNotSpinOnWhatSomebodyHolds(t *testing.T) {
	s := &pacedStore{took: time.Millisecond, lag: time.Hour, idle: true}
	p := run(t, &Sweeper{Store: s, Now: func() time.Time { return s.now }})
	for want := minPause; want < maxPause; want *= 2 {
		p.expect(t, want)
		p.over <- time.Time{}
	}
	p.expect(t, maxPause)
	p.over <- time.Time{}
}

func TestASweeperLeavesABusyStoreAloneUnlessItFallsFarBehind(t *testing.T) {
	for _, c := range []struct{ took, lag, want time.Duration }{
		{time.Millisecond, 0, minRest},
		{10 * time.Millisecond, 0, 40 * time.Millisecond},
		{time.Second, farBehind, 4 * time.Second},
		{10 * time.Millisecond, farBehind + 1, 10 * time.Millisecond},
		{time.Millisecond, time.Hour, 5 * time.Millisecond},
	} {
		s := &pacedStore{took: c.took, lag: c.lag}
		p := run(t, &Sweeper{Store: s, Now: func() time.Time { return s.now }})
		p.expect(t, minPause)
		p.over <- time.Time{}
		p.expect(t, c.want)
		p.over <- time.Time{}
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
		Store: &failing{Store: h.Store, times: 2}, Swept: func(s store.Swept, _ time.Duration) { deleted += s.Deleted },
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

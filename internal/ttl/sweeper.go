package ttl

import (
	"context"
	"log/slog"
	"time"

	"github.com/idemd/idemd/internal/store"
)

// batch is how many records one commit deletes.
const batch = 500

// The pauses between batches.
const (
	// minPause and maxPause are for when nothing is left: doubling from the shortest to
	// the longest while there is nothing to do. So are those after a failure.
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
	// While there is work, a sweeper rests for restRatio times as long as its last batch
	// took: a store that is busy takes longer and is left alone for longer. minRest makes
	// it at most 20,000 records a second.
	restRatio = 4
	minRest   = 25 * time.Millisecond
	// One that is far behind rests for as long as it works: more is expiring than it
	// sweeps, and the disk fills.
	farBehind       = time.Minute
	farBehindRatio  = 1
	farBehindMinima = 5 * time.Millisecond
)

// Sweeper deletes expired records, and takes out bodies that have expired before them, until its context ends. Several processes may
// sweep one store: they share the work.
type Sweeper struct {
	Store  store.Store
	Logger *slog.Logger
	// Swept is called after each batch, with the time it took; may be nil.
	Swept func(swept store.Swept, took time.Duration)
	// Failed is called for each batch that failed; may be nil.
	Failed func(error)
	// After and Now are those of package time, or a test's.
	After func(time.Duration) <-chan time.Time
	Now   func() time.Time
}

// Run sweeps until ctx ends. A failure is reported and tried again after a pause:
// what was swept before stays swept.
func (s *Sweeper) Run(ctx context.Context) {
	after, now := s.After, s.Now
	if after == nil {
		after = time.After
	}
	if now == nil {
		now = time.Now
	}
	pause := minPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-after(pause):
		}
		pause = s.sweep(ctx, now, pause)
	}
}

// sweep deletes one batch and tells how long to pause after it; last is the pause
// before it.
func (s *Sweeper) sweep(ctx context.Context, now func() time.Time, last time.Duration) (pause time.Duration) {
	began := now()
	swept, err := s.Store.Sweep(ctx, batch)
	took := now().Sub(began)
	if err != nil {
		s.report(ctx, err)
		return longer(last)
	}
	if s.Swept != nil {
		s.Swept(swept, took)
	}
	switch {
	case swept.Deleted+swept.Stripped == 0:
		return longer(last) // also where something is left: it is held by somebody, or damaged
	case swept.More:
		return rest(took, swept.Lag)
	}
	return minPause
}

// rest is the pause while there is work.
func rest(took, lag time.Duration) time.Duration {
	if lag > farBehind {
		return max(farBehindRatio*took, farBehindMinima)
	}
	return max(restRatio*took, minRest)
}

// longer is the pause while there is nothing to do, or nothing can be done.
func longer(last time.Duration) time.Duration { return min(max(2*last, minPause), maxPause) }

func (s *Sweeper) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.Logger.Warn("sweeping expired records failed; it is tried again", "error", err)
	if s.Failed != nil {
		s.Failed(err)
	}
}

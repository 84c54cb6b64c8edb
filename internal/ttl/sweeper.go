package ttl

import (
	"context"
	"log/slog"
	"time"

	"github.com/idemd/idemd/internal/store"
)

// The pace of a sweeper.
const (
	// batch is how many records one commit deletes.
	batch = 500
	// maxBatches bounds what one round deletes before it pauses for callers.
	maxBatches = 20
	// minPause and maxPause are the pauses between rounds: the shortest while there
	// is work, doubling up to the longest while there is none.
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
)

// Sweeper deletes expired records until its context ends. Several processes may
// sweep one store: they share the work.
type Sweeper struct {
	Store  store.Store
	Logger *slog.Logger
	// Swept is called after each batch; may be nil.
	Swept func(store.Swept)
	// Failed is called for each batch that failed; may be nil.
	Failed func(error)
	// After is time.After, or a test's.
	After func(time.Duration) <-chan time.Time
}

// Run sweeps until ctx ends. A failure is reported and tried again after a pause:
// what was swept before stays swept.
func (s *Sweeper) Run(ctx context.Context) {
	after := s.After
	if after == nil {
		after = time.After
	}
	pause := minPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-after(pause):
		}
		if deleted := s.round(ctx); deleted > 0 {
			pause = minPause
		} else {
			pause = min(2*pause, maxPause)
		}
	}
}

// round sweeps until nothing is left, a batch fails or the round is long enough, and
// tells how much it deleted.
func (s *Sweeper) round(ctx context.Context) (deleted int) {
	for range maxBatches {
		swept, err := s.Store.Sweep(ctx, batch)
		if err != nil {
			s.report(ctx, err)
			return deleted
		}
		deleted += swept.Deleted
		if s.Swept != nil {
			s.Swept(swept)
		}
		if !swept.More || ctx.Err() != nil {
			return deleted
		}
	}
	return deleted
}

func (s *Sweeper) report(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.Logger.Warn("sweeping expired records failed; it is tried again", "error", err)
	if s.Failed != nil {
		s.Failed(err)
	}
}

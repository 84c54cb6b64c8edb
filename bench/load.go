package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	crand "crypto/rand"
)

// operation is one side effect that must happen once, under a key of its own.
type operation struct {
	key   string
	token []byte
}

// client runs cycles: the right to execute is asked for, and the result is stored.
type client interface {
	cycle(ctx context.Context, op operation) error
	close()
}

// lap is one cycle that was run.
type lap struct {
	ended time.Time
	took  time.Duration
}

// window is the time that counts.
type window struct{ begin, end time.Time }

func (w window) holds(l lap) bool { return !l.ended.Before(w.begin) && l.ended.Before(w.end) }

// callers run cycles as fast as they are answered, each one cycle at a time.
type callers struct {
	client  client
	stopped atomic.Bool
	running sync.WaitGroup
	laps    [][]lap // of each caller
	failed  chan error
}

func startCallers(ctx context.Context, c client, n int) *callers {
	all := &callers{client: c, laps: make([][]lap, n), failed: make(chan error, n)}
	for i := range n {
		all.running.Go(func() { all.call(ctx, i) })
	}
	return all
}

func (all *callers) call(ctx context.Context, i int) {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	random := rand.NewChaCha8(seed)
	laps := make([]lap, 0, 1024)
	for !all.stopped.Load() {
		op := freshOperation(random)
		began := time.Now()
		if err := all.client.cycle(ctx, op); err != nil {
			all.failed <- err
			break
		}
		ended := time.Now()
		laps = append(laps, lap{ended, ended.Sub(began)})
	}
	all.laps[i] = laps
}

// freshOperation has a key that was never used: random, as keys in the wild are.
func freshOperation(random *rand.ChaCha8) operation {
	token := make([]byte, 16)
	_, _ = random.Read(token) // never fails
	return operation{
		key:   "order-" + strconv.FormatUint(random.Uint64(), 16) + strconv.FormatUint(random.Uint64(), 16),
		token: token,
	}
}

// stop waits for the cycles under way and returns the durations of those in the window,
// sorted.
func (all *callers) stop(w window) ([]time.Duration, error) {
	all.stopped.Store(true)
	all.running.Wait()
	close(all.failed)
	if err := <-all.failed; err != nil {
		return nil, err
	}
	var took []time.Duration
	for _, laps := range all.laps {
		for _, l := range laps {
			if w.holds(l) {
				took = append(took, l.took)
			}
		}
	}
	if len(took) == 0 {
		return nil, errors.New("no cycle ended within the window")
	}
	slices.Sort(took)
	return took, nil
}

// pause waits, or less where ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package engine

import (
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// writer turns calls into batches, one after the other.
type writer struct {
	store                store.Store
	queue                *queue
	take                 func() []*call
	timeout, heldTimeout time.Duration
	applied              func(commands int, took time.Duration)
	// changed is told what the outcomes changed.
	changed func(calls []*call)
}

func (w *writer) run() {
	for batch := w.take(); len(batch) > 0; batch = w.take() {
		w.apply(batch)
	}
}

func (w *writer) apply(batch []*call) {
	live := w.dropGone(batch)
	if len(live) == 0 {
		return
	}
	commands := make([]reservation.Command, len(live))
	for i, c := range live {
		commands[i] = c.command
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	outcomes := w.store.Apply(ctx, commands)
	cancel()
	if w.applied != nil {
		w.applied(len(live), time.Since(began))
	}
	w.answer(live, outcomes)
}

// dropGone leaves out the calls whose callers have given up: nothing is granted to
// somebody who is gone.
func (w *writer) dropGone(batch []*call) []*call {
	live := batch[:0]
	gone, size := 0, 0
	for _, c := range batch {
		if c.ctx.Err() == nil {
			live = append(live, c)
			continue
		}
		close(c.done)
		gone++
		size += c.size
	}
	w.queue.answered(gone, size)
	return live
}

func (w *writer) answer(calls []*call, outcomes []reservation.Outcome) {
	answered, size := 0, 0
	for i, c := range calls {
		if store.IsBusy(outcomes[i]) {
			if c.busy == 0 || time.Since(c.heldAt) < w.heldTimeout {
				w.queue.again(c)
				continue
			}
			outcomes[i] = store.Unavailable()
		}
		c.outcome = outcomes[i]
		close(c.done)
		answered++
		size += c.size
	}
	w.queue.answered(answered, size)
	w.changed(calls)
}

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
	// settled is told of each call that its outcome is known, or that it was dropped.
	settled func(*call)
}

func (w *writer) run() {
	for batch := w.take(); len(batch) > 0; batch = w.take() {
		w.apply(batch)
	}
}

func (w *writer) apply(batch []*call) {
	live := w.dropGone(batch)
	commands := make([]reservation.Command, 0, len(live))
	for _, first := range live {
		for c := range first.chain {
			commands = append(commands, c.command)
		}
	}
	if len(commands) == 0 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	outcomes := w.store.Apply(ctx, commands)
	cancel()
	if w.applied != nil {
		w.applied(len(commands), time.Since(began))
	}
	w.answer(live, outcomes)
}

// dropGone leaves out the calls whose callers have given up: nothing is granted to
// somebody who is gone.
func (w *writer) dropGone(batch []*call) []*call {
	live := batch[:0]
	var gone []*call
	for _, first := range batch {
		if first.ctx.Err() == nil {
			live = append(live, first)
			continue
		}
		gone = append(gone, first)
		for c := range first.chain {
			w.settled(c)
			c.done.one()
		}
	}
	w.queue.answered(gone)
	return live
}

func (w *writer) answer(calls []*call, outcomes []reservation.Outcome) {
	answered := calls[:0]
	for _, first := range calls {
		n, _ := first.extent()
		own := outcomes[:n]
		outcomes = outcomes[n:]
		// What a rival holds it holds for the whole chain: it is about one address.
		if store.IsBusy(own[0]) && (first.busy == 0 || time.Since(first.heldAt) < w.heldTimeout) {
			w.queue.again(first)
			continue
		}
		i := 0
		for c := range first.chain {
			if c.outcome = own[i]; store.IsBusy(c.outcome) {
				c.outcome = store.Unavailable()
			}
			i++
			w.settled(c)
			c.done.one()
		}
		answered = append(answered, first)
	}
	w.queue.answered(answered)
	w.changed(answered)
}

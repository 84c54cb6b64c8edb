package engine

import (
	"context"
	"sync/atomic"

	"github.com/idemd/idemd/internal/reservation"
)

// Answer is what became of one command of many, as Do tells it.
type Answer struct {
	Outcome reservation.Outcome
	Err     error
}

// DoAll is Do for many commands of one caller, at most store.MaxBatch. Those on one
// address run in their order; one that is refused stops no other. If ctx ends first, all
// are answered with its error: they may still be done.
func (e *Engine) DoAll(ctx context.Context, commands []reservation.Command) []Answer {
	answers := make([]Answer, len(commands))
	gone := func() []Answer {
		for i := range answers {
			answers[i].Err = ctx.Err()
		}
		return answers
	}
	if ctx.Err() != nil {
		return gone()
	}
	all := &gathering{full: make(chan struct{})}
	calls := e.queueAll(ctx, commands, all)
	select {
	case <-all.full:
	case <-ctx.Done():
		return gone()
	}
	for i, c := range calls {
		if c.outcome == nil { // dropped
			answers[i].Err = ctx.Err()
			continue
		}
		answers[i].Outcome, answers[i].Err = e.answer(c.command, c.outcome, nil)
	}
	return answers
}

// queueAll queues what is valid, in chains of one address each. What is refused is
// answered at once.
func (e *Engine) queueAll(ctx context.Context, commands []reservation.Command, all *gathering) []*call {
	all.left.Store(int64(len(commands)) + 1) // one more, so that it is not full before all are queued
	defer all.one()
	calls := make([]*call, len(commands))
	admissions := e.admitAll(ctx, commands)
	last := make(map[reservation.Address]*call, len(commands))
	firsts := make([]*call, 0, len(commands))
	for i, command := range commands {
		c := newCall(ctx, command, all)
		calls[i] = c
		if refusal := admissions[i].refusal; refusal != nil {
			c.outcome = refusal
			all.one()
			continue
		}
		c.entered = admissions[i].entered
		if before := last[command.Target()]; before != nil {
			before.then = c
		} else {
			firsts = append(firsts, c)
		}
		last[command.Target()] = c
	}
	for _, first := range firsts {
		if refusal := e.queue.add(first); refusal != nil {
			for c := range first.chain {
				c.outcome = refusal
				e.settled(c)
				all.one()
			}
		}
	}
	return calls
}

// gathering is the signal of many calls that are waited for together.
type gathering struct {
	left atomic.Int64
	full chan struct{}
}

func (g *gathering) one() {
	if g.left.Add(-1) == 0 {
		close(g.full)
	}
}

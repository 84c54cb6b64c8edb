package engine

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Options are what an engine is made of.
type Options struct {
	Store    store.Store
	Policies Policies
	// Writers is how many batches are under way at once: with more than one, the
	// reads of the next overlap the sync of the last. Zero = 2. Beside them one writer
	// tries again what rivals hold.
	Writers int
	// ApplyTimeout bounds one batch. Zero = 5 s.
	ApplyTimeout time.Duration
	// HeldTimeout bounds how long a command is applied again because a rival holds its
	// address; then it is refused with STORE_UNAVAILABLE. Zero = 10 s.
	HeldTimeout time.Duration
	// Jitter is a number from 0 to 1, for retry hints. Nil = random.
	Jitter func() float64
	Hooks  Hooks
}

// Hooks let a daemon measure. Each may be nil. They are called on the hot path and
// must not block.
type Hooks struct {
	// Applied is called for each batch, with its commands and the time it took.
	Applied func(commands int, took time.Duration)
	// Decided is called for each command that was answered.
	Decided func(address reservation.Address, outcome reservation.Outcome)
}

// Engine answers calls. It is safe for use by many goroutines.
type Engine struct {
	policies Policies
	queue    *queue
	hooks    Hooks
	jitter   func() float64
}

// New starts an engine. Close ends it. The store stays the caller's to close.
func New(o Options) (*Engine, error) {
	if err := o.Policies.Validate(); err != nil {
		return nil, err
	}
	if o.Writers == 0 {
		o.Writers = 2
	}
	if o.ApplyTimeout == 0 {
		o.ApplyTimeout = 5 * time.Second
	}
	if o.HeldTimeout == 0 {
		o.HeldTimeout = 10 * time.Second
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	e := &Engine{policies: o.Policies, queue: newQueue(), hooks: o.Hooks, jitter: o.Jitter}
	for i := range o.Writers + 1 {
		w := &writer{
			store: o.Store, queue: e.queue, take: e.queue.take,
			timeout: o.ApplyTimeout, heldTimeout: o.HeldTimeout, applied: o.Hooks.Applied,
		}
		if i == o.Writers {
			w.take = e.queue.takeHeld
		}
		e.queue.writers.Go(w.run)
	}
	return e, nil
}

// Do runs one command and waits for its outcome. Fields that the caller left unset
// are filled in by policy; the command is the engine's from then on.
//
// The error is a [*reservation.Error] where the command was refused, or the
// context's error where the caller gave up: then the command may still be done.
func (e *Engine) Do(ctx context.Context, command reservation.Command) (reservation.Outcome, error) {
	outcome, err := e.do(ctx, command)
	if err != nil {
		return nil, err
	}
	if e.hooks.Decided != nil {
		e.hooks.Decided(command.Target(), outcome)
	}
	switch o := outcome.(type) {
	case *reservation.Error:
		return nil, o
	case *reservation.InProgress:
		o.RetryAfter = e.spread(o)
	}
	return outcome, nil
}

func (e *Engine) do(ctx context.Context, command reservation.Command) (reservation.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := e.policies.complete(command); err != nil {
		return err, nil
	}
	if err := command.Validate(); err != nil {
		return err, nil
	}
	call := newCall(ctx, command)
	if err := e.queue.add(call); err != nil {
		return err, nil
	}
	select {
	case <-call.done:
		return call.outcome, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// spread moves a retry hint by up to a quarter, so that those who were told at the
// same time don't come back at the same time. A scheduled retry is moved to later
// only: asking before it is in vain.
func (e *Engine) spread(o *reservation.InProgress) time.Duration {
	quarter := float64(o.RetryAfter) / 4
	if o.State == reservation.FailedRetryable {
		return o.RetryAfter + time.Duration(quarter*e.jitter())
	}
	return o.RetryAfter - time.Duration(quarter*e.jitter())
}

// Drain refuses new calls with DRAINING and waits until those under way are
// answered or ctx ends.
func (e *Engine) Drain(ctx context.Context) error { return e.queue.drain(ctx) }

// Close drains without a bound and ends the engine's goroutines.
func (e *Engine) Close() {
	_ = e.queue.drain(context.Background())
	e.queue.close()
}

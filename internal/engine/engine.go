package engine

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
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
	Decided func(command reservation.Command, outcome reservation.Outcome)
	// Polled is called for each read that waiting calls cost the store, with the
	// addresses it was about and the time it took.
	Polled func(addresses int, took time.Duration)
}

// Engine answers calls. It is safe for use by many goroutines.
type Engine struct {
	name      string // among the daemons on one store
	store     store.Store
	rules     atomic.Pointer[rules]
	rulesMu   sync.Mutex // held while rules are swapped
	measuring measuring
	relents   relents
	queue     *queue
	waiters   *waiters
	hooks     Hooks
	jitter    func() float64
	desk      *desk
}

// New starts an engine. Close ends it. The store stays the caller's to close.
func New(o Options) (*Engine, error) {
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
		o.Jitter = mathrand.Float64
	}
	e := &Engine{name: rand.Text(), store: o.Store, queue: newQueue(), relents: newRelents(), hooks: o.Hooks, jitter: o.Jitter, desk: newDesk(o.Store)}
	if err := e.SetPolicies(o.Policies); err != nil {
		return nil, err
	}
	e.waiters = newWaiters(o.Store, e.ask, o.Hooks.Polled)
	for i := range o.Writers + 1 {
		w := &writer{
			store: o.Store, queue: e.queue, take: e.queue.take,
			timeout: o.ApplyTimeout, heldTimeout: o.HeldTimeout, applied: o.Hooks.Applied, changed: e.waiters.changed, settled: e.settled,
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
	return e.answer(command, outcome, err)
}

// Await is Do for a Reserve or a Lookup that would rather wait than hear that somebody
// is on it: a Reserve until it is granted or answered by what is stored, a Lookup until
// the operation has finished or is unresolved. When wait is over, or a little before
// ctx's deadline, it is answered like Do. Of many that wait for one address, one is
// granted the next attempt, in the order in which they came; one whose ctx has ended
// never is.
//
// Besides the errors of Do: OVERLOADED where too many wait already, DRAINING when the
// engine ends, STORE_UNAVAILABLE where the store can't tell how things stand.
func (e *Engine) Await(ctx context.Context, command reservation.Command, wait time.Duration) (reservation.Outcome, error) {
	if err := reservation.CheckWait(wait); err != nil {
		return nil, err
	}
	until := waitUntil(ctx, time.Now(), wait)
	outcome, err := e.do(ctx, command)
	if err == nil && undecided(outcome) && time.Now().Before(until) {
		outcome, err = e.waiters.wait(ctx, command, outcome, until)
	}
	return e.answer(command, outcome, err)
}

// Waiting is how many calls wait for others to finish.
func (e *Engine) Waiting() int { return e.waiters.waiting() }

// Queued is how many commands the store has not answered yet, those in a batch under way
// included.
func (e *Engine) Queued() int { return e.queue.depth() }

// answer is what the caller hears.
func (e *Engine) answer(command reservation.Command, outcome reservation.Outcome, err error) (reservation.Outcome, error) {
	if err != nil {
		return nil, err
	}
	if e.hooks.Decided != nil {
		e.hooks.Decided(command, outcome)
	}
	switch o := outcome.(type) {
	case *reservation.Error:
		if o.RetryAfter > 0 {
			refusal := *o // it may be other callers' as well
			spread := e.jitter() / 2
			if !known(o.Reason) {
				spread = e.jitter() - 0.5
			}
			refusal.RetryAfter += time.Duration(float64(o.RetryAfter) * spread)
			return nil, &refusal
		}
		return nil, o
	case *reservation.InProgress:
		o.RetryAfter = e.spread(o)
	}
	return outcome, nil
}

// known tells whether it is known when a retry can help: before that it is in vain.
func known(reason reservation.Reason) bool {
	return reason == reservation.RateLimited || reason == reservation.NotSettled
}

// do completes a command by its policy, checks it, and runs it for a caller.
func (e *Engine) do(ctx context.Context, command reservation.Command) (reservation.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	admitted := e.admit(ctx, command)
	if admitted.refusal != nil {
		return admitted.refusal, nil
	}
	return e.run(ctx, ctx, command, admitted.entered)
}

// run has the store apply a command. It is dropped, undone, if inTime ends before the store
// has it; once it has, its outcome is waited for until ctx ends.
func (e *Engine) run(ctx, inTime context.Context, command reservation.Command, entered [2]*quota) (reservation.Outcome, error) {
	done := make(alone)
	call := newCall(inTime, command, done)
	call.entered = entered
	if err := e.queue.add(call); err != nil {
		e.settled(call)
		return err, nil
	}
	select {
	case <-done:
		if call.outcome == nil {
			return nil, inTime.Err()
		}
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

// Drain refuses new calls with DRAINING, ends those that wait for others with the
// same, and waits until those under way are answered or ctx ends.
func (e *Engine) Drain(ctx context.Context) error {
	e.waiters.drain()
	return e.queue.drain(ctx)
}

// Close drains without a bound and ends the engine's goroutines.
func (e *Engine) Close() {
	_ = e.Drain(context.Background())
	e.waiters.close()
	e.queue.close()
}

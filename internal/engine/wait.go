package engine

import (
	"container/list"
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// maxWaiters is how many calls may wait for others to finish.
const maxWaiters = 20_000

// waitUntil is when a call must stop waiting: early enough before its caller's own
// deadline that the answer still arrives.
func waitUntil(ctx context.Context, now time.Time, wait time.Duration) time.Time {
	until := now.Add(wait)
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return until
	}
	margin := min(max(deadline.Sub(now)/10, 20*time.Millisecond), 250*time.Millisecond)
	if answerBy := deadline.Add(-margin); answerBy.Before(until) {
		return answerBy
	}
	return until
}

// undecided tells whether an outcome is one that a call may wait to see replaced.
func undecided(outcome reservation.Outcome) bool {
	switch o := outcome.(type) {
	case *reservation.InProgress:
		return true
	case *reservation.Found:
		return o.Shown == reservation.Processing || o.Shown == reservation.FailedRetryable
	}
	return false
}

// waiter is one call that waits.
type waiter struct {
	command reservation.Command
	room    *room
	// last is what it hears when its time is over and nobody has looked since.
	last reservation.Outcome
	// told has room for the one word that may be under way.
	told chan word
	// after is how many reads had begun when it came.
	after uint64
	// place is where it stands in its room; nil = it has left, or its answer is under
	// way. Guarded by waiters.mu.
	place *list.Element
}

// word is what a waiter is told: its answer, or that it is its turn to ask for the
// next attempt.
type word struct {
	answer reservation.Outcome // nil = it is its turn
}

// wait holds a call until it is answered.
func (w *waiters) wait(ctx context.Context, command reservation.Command, last reservation.Outcome, until time.Time) (reservation.Outcome, error) {
	me := &waiter{command: command, last: last, told: make(chan word, 1)}
	if err := w.join(me); err != nil {
		return err, nil
	}
	over := time.NewTimer(time.Until(until))
	defer over.Stop()
	for {
		select {
		case said := <-me.told:
			if said.answer != nil {
				return said.answer, nil
			}
			// The queue looks at ctx again just before it grants.
			outcome, err := w.ask(ctx, command)
			if err != nil || !undecided(outcome) {
				w.leave(me)
				return outcome, err
			}
			w.turnIsOver(me, outcome)
		case <-over.C:
			return w.answerAtTheEnd(ctx, me)
		case <-ctx.Done():
			w.leave(me)
			return nil, ctx.Err()
		case <-w.ended:
			if answer := w.leave(me); answer != nil {
				return answer, nil
			}
			return draining(), nil
		}
	}
}

// answerAtTheEnd is the answer when the time is over: how things stood when they were
// last looked at. A Lookup shows more than waiting keeps, and looks again.
func (w *waiters) answerAtTheEnd(ctx context.Context, me *waiter) (reservation.Outcome, error) {
	if answer := w.leave(me); answer != nil {
		return answer, nil
	}
	w.mu.Lock()
	last, blind := me.room.last, !w.blindSince.IsZero()
	if me.after >= me.room.lastRead {
		last = sight{}
	}
	w.mu.Unlock()
	reserve, reserves := me.command.(*reservation.Reserve)
	switch {
	case blind:
		return store.Unavailable(), nil
	case !reserves:
		return w.ask(ctx, me.command)
	case last.record == nil:
		return me.last, nil
	}
	next, outcome := reservation.Decide(last.now, last.record, reserve)
	if _, waits := outcome.(*reservation.InProgress); waits && next == last.record {
		return outcome, nil
	}
	// It could be granted now, or settled: asking again tells.
	return &reservation.InProgress{
		State: last.record.State, Attempt: last.record.Attempt, Owner: last.record.Owner,
		LeaseExpiresAt: last.record.LeaseExpiresAt, RetryAfter: minPoll,
	}, nil
}

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
	// roused says that something has happened: look. It has room for one word.
	roused chan struct{}

	// Guarded by waiters.mu:

	// after is how many reads had begun when it came.
	after uint64
	// place is where it stands in its room; nil = it has left, or is answered.
	place *list.Element
	// answer is final: it is decided, and may be on its way still.
	answer reservation.Outcome
}

// rouse has the waiter look; it does not block.
func (me *waiter) rouse() {
	select {
	case me.roused <- struct{}{}:
	default:
	}
}

// wait holds a call until it is answered.
func (w *waiters) wait(ctx context.Context, command reservation.Command, last reservation.Outcome, until time.Time) (reservation.Outcome, error) {
	me := &waiter{command: command, last: last, roused: make(chan struct{}, 1)}
	if err := w.join(me); err != nil {
		return err, nil
	}
	defer w.leave(me)
	// What it asks for when it is its turn is dropped when its time is over.
	inTime, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		select {
		case <-me.roused:
			answer, turn := w.news(me)
			if answer != nil {
				return answer, nil
			}
			if !turn {
				continue
			}
			outcome, err := w.ask(ctx, inTime, command)
			if inTime.Err() != nil && ctx.Err() == nil && outcome == nil {
				return w.answerAtTheEnd(ctx, me)
			}
			if err != nil || !undecided(outcome) {
				return outcome, err
			}
			w.turnIsOver(me, outcome)
		case <-inTime.Done():
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return w.answerAtTheEnd(ctx, me)
		case <-w.ended:
			if answer, _ := w.news(me); answer != nil && sizeOfOutcome(answer) <= smallAnswer {
				return answer, nil
			}
			return draining(), nil
		}
	}
}

// answerAtTheEnd is the answer when the time is over: how things stood when they were
// last looked at. A Lookup shows more than waiting keeps, and looks again.
func (w *waiters) answerAtTheEnd(ctx context.Context, me *waiter) (reservation.Outcome, error) {
	w.mu.Lock()
	answer, last, blind := me.answer, me.room.last, !w.blindSince.IsZero()
	if me.after >= me.room.lastRead {
		last = sight{}
	}
	w.mu.Unlock()
	reserve, reserves := me.command.(*reservation.Reserve)
	switch {
	case answer != nil && sizeOfOutcome(answer) > smallAnswer:
		return tooLarge(), nil
	case answer != nil:
		return answer, nil
	case blind:
		return store.Unavailable(), nil
	case !reserves:
		return w.ask(ctx, ctx, me.command)
	case last.record == nil:
		return me.last, nil
	}
	next, outcome := reservation.Decide(last.now, last.record, reserve)
	if _, waits := outcome.(*reservation.InProgress); waits && next == last.record {
		return outcome, nil
	}
	// It could be granted now: asking again decides.
	return &reservation.InProgress{
		State: last.record.State, Attempt: last.record.Attempt, Owner: last.record.Owner,
		LeaseExpiresAt: last.record.LeaseExpiresAt, RetryAfter: minPoll,
	}, nil
}

// tooLarge is for who waited for a large answer, for which its time was too short.
func tooLarge() *reservation.Error {
	return &reservation.Error{
		Reason: reservation.Overloaded, RetryAfter: overloadRetry,
		Message: "the answer is there, but it is large and too many wait for it at once; ask again",
	}
}

package engine

import (
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// answer is what one waiter will be told.
type answer struct {
	to      *waiter
	outcome reservation.Outcome
}

// waiting are those in a room whose turn it is not, first come first. Call it with mu
// held.
func (r *room) waiting() (all []*waiter) {
	for e := r.waiters.Front(); e != nil; e = e.Next() {
		if waits := e.Value.(*waiter); waits != r.turn {
			all = append(all, waits)
		}
	}
	return all
}

// tell tells those in a room what follows from its record.
func (w *waiters) tell(r *room, now reservation.Time, found store.Found) {
	w.mu.Lock()
	r.seen, r.last, r.lastRead = found.Seen, sightOf(now, found.Record), w.reads
	waiting := r.waiting()
	for n, waits := range waiting {
		if waits.after >= w.reads {
			// It came during this read, which may be older than its call: the next one
			// is for it and for those behind it.
			waiting, r.again = waiting[:n], true
			break
		}
	}
	w.mu.Unlock()
	answers, next := judge(now, found, waiting)
	w.deliver(answers)
	if next != nil {
		w.giveTurn(r, next)
	}
}

// judge says what each waiter is answered by a record: those whose answer changes
// nothing hear it. The first who would be granted the next attempt is returned: it has
// to ask.
func judge(now reservation.Time, found store.Found, waiting []*waiter) (answers []answer, next *waiter) {
	for _, waits := range waiting {
		if found.Unreadable {
			answers = append(answers, answer{waits, store.Unreadable()})
			continue
		}
		changed, outcome := reservation.Decide(now, found.Record, waits.command)
		switch {
		case changed != found.Record:
			if next == nil {
				next = waits
			}
		case !undecided(outcome):
			answers = append(answers, answer{waits, outcome})
		}
	}
	return answers, next
}

// giveTurn lets one waiter ask for the next attempt, unless another does already.
func (w *waiters) giveTurn(r *room, next *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.turn != nil:
	case next.place == nil: // it has left
		r.again = true
	default:
		r.turn = next
		next.rouse()
	}
}

// Answers with large bodies go out bit by bit: each becomes a message of its own in
// memory until its caller has taken it.
const (
	atOnceBytes = 64 << 20
	nextAfter   = 100 * time.Millisecond
	// smallAnswer is what need not be waited for in that queue.
	smallAnswer = 64 << 10
)

// deliver answers waiters. From then on nothing else can become of them, however long
// their answer is on its way.
func (w *waiters) deliver(answers []answer) {
	answered := answers[:0]
	w.mu.Lock()
	for _, a := range answers {
		if a.to.place == nil {
			continue // it has left
		}
		a.to.answer = a.outcome
		w.takeOut(a.to)
		answered = append(answered, a)
	}
	w.mu.Unlock()
	rest := send(answered)
	if len(rest) == 0 {
		return
	}
	w.tasks.Go(func() {
		ticker := time.NewTicker(nextAfter)
		defer ticker.Stop()
		for len(rest) > 0 {
			select {
			case <-ticker.C:
				rest = send(rest)
			case <-w.ended:
				return
			}
		}
	})
}

// send sends as many answers as may go at once and returns the others.
func send(answers []answer) (rest []answer) {
	size := 0
	for i, a := range answers {
		if size > atOnceBytes {
			return answers[i:]
		}
		a.to.rouse()
		size += sizeOfOutcome(a.outcome)
	}
	return nil
}

// sizeOfOutcome is the size of the message that an outcome becomes, roughly.
func sizeOfOutcome(outcome reservation.Outcome) int {
	var result *reservation.Result
	size := 0
	switch o := outcome.(type) {
	case *reservation.Replay:
		result = o.Result
	case *reservation.Found:
		result, size = o.Record.Result, len(o.Record.Checkpoint)
	case *reservation.Unresolved:
		size = len(o.Checkpoint)
	}
	if result == nil {
		return size
	}
	size += len(result.Body)
	for _, h := range result.Headers {
		size += len(h.Name) + len(h.Value)
	}
	return size
}

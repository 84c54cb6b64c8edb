package engine

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// waiters are all calls that wait, in rooms. One goroutine reads the rooms' records, many
// at a time, and tells the waiters: an answer from what is stored needs no write, so that
// ten thousand of them cost one read. Where the next attempt can be granted, one waiter at
// a time asks for it, through the queue like any other call.
type waiters struct {
	store  store.Store
	ask    asker
	polled func(addresses int, took time.Duration) // may be nil
	// patience is how long the store may fail to tell how things stand before those who
	// wait hear of it.
	patience time.Duration

	mu     sync.Mutex
	rooms  map[reservation.Address]*room
	agenda agenda
	count  int    // calls that wait, those too whose answer is on its way
	reads  uint64 // how many have begun
	// blindSince is when the store stopped telling how things stand; zero = it tells.
	blindSince time.Time
	// restUntil is how long nothing is read after a read that failed.
	restUntil time.Time

	// open is the number of rooms, for who does not hold mu.
	open atomic.Int64
	// recent are addresses whose records this engine has changed.
	recentMu sync.Mutex
	recent   []reservation.Address

	wake   chan struct{} // the agenda's beginning has changed, or recent has gained something
	ended  chan struct{} // closed by drain
	drains sync.Once
	closed chan struct{}
	tasks  sync.WaitGroup
}

// asker runs a command for a caller. It is dropped, undone, if inTime ends before the store
// has it.
type asker func(ctx, inTime context.Context, command reservation.Command) (reservation.Outcome, error)

func newWaiters(s store.Store, ask asker, polled func(int, time.Duration)) *waiters {
	w := &waiters{
		store: s, ask: ask, polled: polled, patience: blindPatience, rooms: make(map[reservation.Address]*room),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), closed: make(chan struct{}),
	}
	w.tasks.Go(w.poll)
	return w
}

func (w *waiters) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// join lets a waiter into the room of its address.
func (w *waiters) join(me *waiter) *reservation.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= maxWaiters {
		return &reservation.Error{
			Reason: reservation.Overloaded, RetryAfter: overloadRetry,
			Message: "too many calls are waiting for others to finish (at most 20000); ask again later, or without wait",
		}
	}
	w.count++
	address := me.command.Target()
	r := w.rooms[address]
	if r == nil {
		now := time.Now()
		r = &room{address: address, since: now, every: minPoll, place: -1}
		w.rooms[address] = r
		w.agenda.set(r, now.Add(minPoll))
		w.open.Add(1)
		w.rouse()
	}
	r.seen = store.Seen{} // what is known was told to others, before this one came
	me.room, me.after = r, w.reads
	me.place = r.waiters.PushBack(me)
	return nil
}

// leave ends a waiter's stay.
func (w *waiters) leave(me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	w.passOn(me)
	w.takeOut(me)
}

// news tells a waiter its answer, or that it is its turn.
func (w *waiters) news(me *waiter) (answer reservation.Outcome, turn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return me.answer, me.room.turn == me
}

// turnIsOver notes that a waiter has asked for the next attempt and must go on waiting.
func (w *waiters) turnIsOver(me *waiter, outcome reservation.Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	me.last = outcome
	w.passOn(me)
}

// passOn lets the next waiter have its turn, if it was this one's. Call it with mu held.
func (w *waiters) passOn(me *waiter) {
	if r := me.room; r.turn == me {
		r.turn = nil
		w.readSoon(r)
	}
}

// takeOut takes a waiter out of its room. Call it with mu held.
func (w *waiters) takeOut(me *waiter) {
	if me.place == nil {
		return
	}
	r := me.room
	r.waiters.Remove(me.place)
	me.place = nil
	if r.waiters.Len() > 0 {
		return
	}
	delete(w.rooms, r.address)
	w.open.Add(-1)
	if r.place >= 0 {
		heap.Remove(&w.agenda, r.place)
	}
}

// readSoon has a room read at once, and in full. Call it with mu held.
func (w *waiters) readSoon(r *room) {
	r.seen = store.Seen{}
	if r.place >= 0 {
		w.agenda.set(r, time.Now())
		w.rouse()
		return
	}
	r.again = true // it is being read: what is read may be older than what happened
}

// rouse has the goroutine look at the agenda again.
func (w *waiters) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// changed hears of what this engine has applied, so that its own waiters need not wait
// for the next read. It must not block the writers.
func (w *waiters) changed(calls []*call) {
	if w.open.Load() == 0 {
		return
	}
	w.recentMu.Lock()
	for _, first := range calls {
		for c := range first.chain {
			if len(w.recent) < maxRecent && settles(c.outcome) {
				w.recent = append(w.recent, c.command.Target())
			}
		}
	}
	w.recentMu.Unlock()
	w.rouse()
}

// maxRecent bounds what is kept while the store does not answer. What is dropped is found
// by the next read of its room.
const maxRecent = 1 << 16

// settles tells whether an outcome changed what those who wait are answered.
func settles(outcome reservation.Outcome) bool {
	switch o := outcome.(type) {
	case *reservation.Recorded:
		return !o.Repeated
	case *reservation.Owned:
		return !o.Repeated
	}
	return false
}

// drain ends all waiting, for good.
func (w *waiters) drain() { w.drains.Do(func() { close(w.ended) }) }

// close ends the goroutine. Call it after drain.
func (w *waiters) close() {
	close(w.closed)
	w.tasks.Wait()
}

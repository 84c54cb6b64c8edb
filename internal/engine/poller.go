package engine

import (
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

const (
	// pollTimeout bounds one read for those who wait.
	pollTimeout   = 5 * time.Second
	blindPatience = 5 * time.Second
	// blindPause is how long the store rests after a read that failed.
	blindPause = 250 * time.Millisecond
)

// poll reads the rooms whose time has come, one batch after the other, until close.
func (w *waiters) poll() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !isClosed(w.closed) {
		due, wanted, sleep := w.due(time.Now())
		if len(due) > 0 {
			w.read(due, wanted)
			continue
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.closed:
			return
		}
	}
}

// due takes the rooms to be read now, or tells how long there are none.
func (w *waiters) due(now time.Time) (due []*room, wanted []store.Wanted, sleep time.Duration) {
	w.recentMu.Lock()
	recent := w.recent
	w.recent = nil
	w.recentMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, address := range recent {
		if r := w.rooms[address]; r != nil {
			r.seen = store.Seen{}
			w.agenda.set(r, now)
		}
	}
	if rest := w.restUntil.Sub(now); rest > 0 {
		return nil, nil, rest
	}
	if due = w.agenda.take(now); len(due) > 0 {
		w.reads++
	}
	for _, r := range due {
		r.again = false
		wanted = append(wanted, store.Wanted{Address: r.address, Seen: r.seen})
	}
	sleep = time.Hour
	if len(w.agenda) > 0 {
		sleep = w.agenda[0].next.Sub(now)
	}
	return due, wanted, sleep
}

// read reads the rooms' records and tells the waiters what follows.
func (w *waiters) read(due []*room, wanted []store.Wanted) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	snapshot, err := w.store.Get(ctx, wanted)
	cancel()
	if w.polled != nil {
		w.polled(len(wanted), time.Since(began))
	}
	if err != nil {
		w.isBlind(due, began)
		return
	}
	full := make([]bool, len(due))
	for _, f := range snapshot.Found {
		full[f.Index] = true
		w.tell(due[f.Index], snapshot.Now, f)
	}
	w.schedule(due, full, snapshot.Now)
}

// schedule has rooms that were read be read again.
func (w *waiters) schedule(due []*room, full []bool, storeNow reservation.Time) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blindSince = time.Time{}
	for i, r := range due {
		if !w.isOpen(r) || r.place >= 0 {
			continue
		}
		r.every = pause(now.Sub(r.since), len(w.rooms))
		rest := r.every
		if quiet := r.last.quietUntil(); quiet != 0 && !full[i] || quiet > storeNow {
			// When time alone changes the answers, all of the record is needed.
			if left := quiet.Sub(storeNow); left < rest {
				rest, r.seen = max(left, time.Millisecond), store.Seen{}
			}
		}
		if r.again {
			rest, r.seen = 0, store.Seen{}
		}
		w.agenda.set(r, now.Add(rest))
	}
}

// isOpen tells whether somebody waits in a room still. Call it with mu held.
func (w *waiters) isOpen(r *room) bool { return w.rooms[r.address] == r }

// isBlind notes that the store could not be read. Those who wait hear of it only when
// it lasts.
func (w *waiters) isBlind(due []*room, began time.Time) {
	now := time.Now()
	w.mu.Lock()
	if w.blindSince.IsZero() {
		w.blindSince = began
	}
	w.restUntil = now.Add(blindPause)
	for _, r := range due {
		if w.isOpen(r) && r.place < 0 {
			w.agenda.set(r, w.restUntil)
		}
	}
	var answers []answer
	if now.Sub(w.blindSince) >= w.patience {
		for _, r := range w.rooms {
			for _, waits := range r.waiting() {
				answers = append(answers, answer{waits, store.Unavailable()})
			}
		}
	}
	w.mu.Unlock()
	w.deliver(answers)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

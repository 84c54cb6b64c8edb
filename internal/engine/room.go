package engine

import (
	"container/heap"
	"container/list"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// room is where the calls wait that are about one address. They cost the store one
// read together.
type room struct {
	address reservation.Address
	waiters list.List // of *waiter, in the order in which they came
	// turn is the waiter that asks for the next attempt; nil = none does.
	turn *waiter

	seen     store.Seen // as it was last read
	last     sight
	lastRead uint64 // the number of the read that showed it

	since time.Time // when the first waiter came
	next  time.Time // when it is read again
	every time.Duration
	place int  // in the agenda; -1 = it is being read
	again bool // what is being read may be out of date
}

// sight is a record as it was when it was looked at.
type sight struct {
	now    reservation.Time
	record *reservation.Record // what is needed to tell who waits: no result, no history
}

// sightOf keeps of a record what a room goes by while nothing changes.
func sightOf(now reservation.Time, rec *reservation.Record) sight {
	if rec == nil {
		return sight{now: now}
	}
	kept := *rec
	kept.Result, kept.History, kept.Evidence, kept.Checkpoint = nil, nil, nil, nil
	return sight{now: now, record: &kept}
}

// quietUntil is when time alone changes what the waiters are answered.
func (s sight) quietUntil() reservation.Time {
	switch {
	case s.record == nil:
		return 0
	case s.record.State == reservation.Processing:
		return s.record.LeaseExpiresAt
	case s.record.State == reservation.FailedRetryable:
		return min(s.record.RetryAt, s.record.ExpiresAt)
	}
	return 0
}

// How often a room is read.
const (
	// minPoll is for a room that was just opened; maxPoll for one that has been open for
	// long, while there are few.
	minPoll = 25 * time.Millisecond
	maxPoll = 80 * time.Millisecond
	// pollsPerSecond bounds how many rooms are read in a second, in all.
	pollsPerSecond = 12_000
)

// pause is how long a room rests before it is read again: longer the older it is, and
// the more there are.
func pause(age time.Duration, rooms int) time.Duration {
	byAge := min(max(age/16, minPoll), maxPoll)
	byLoad := time.Duration(rooms) * time.Second / pollsPerSecond
	return max(byAge, byLoad)
}

// agenda is a heap of rooms by when they are read next.
type agenda []*room

// Len implements heap.Interface.
func (a agenda) Len() int { return len(a) }

// Less implements heap.Interface.
func (a agenda) Less(i, j int) bool { return a[i].next.Before(a[j].next) }

// Swap implements heap.Interface.
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	r := x.(*room)
	r.place = len(*a)
	*a = append(*a, r)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	r := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	r.place = -1
	return r
}

// set has a room read at a time.
func (a *agenda) set(r *room, at time.Time) {
	r.next = at
	if r.place >= 0 {
		heap.Fix(a, r.place)
		return
	}
	heap.Push(a, r)
}

// take takes the rooms whose time has come, at most as many as one read can be about,
// and with them those whose time comes soon, so that few reads are about many rooms.
func (a *agenda) take(now time.Time) (due []*room) {
	if len(*a) == 0 || (*a)[0].next.After(now) {
		return nil
	}
	for len(*a) > 0 && len(due) < store.MaxBatch && !(*a)[0].next.Add(-(*a)[0].every/4).After(now) {
		due = append(due, heap.Pop(a).(*room))
	}
	return due
}

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// waitForQuiet waits until a room goes by its mark: until its record changes, the store
// leaves it out.
func waitForQuiet(t *testing.T, e *Engine, a reservation.Address) {
	t.Helper()
	waitFor(t, func() bool {
		e.waiters.mu.Lock()
		defer e.waiters.mu.Unlock()
		r := e.waiters.rooms[a]
		return r.seen != store.Seen{} && !r.again
	})
}

func TestOfThoseInARoomOneAtATimeHasTheTurn(t *testing.T) {
	w := newWaiters(storetest.OpenMem(t).Store, nil, nil)
	defer func() { w.drain(); w.close() }()
	var two [2]*waiter
	for i := range two {
		two[i] = &waiter{command: &reservation.Lookup{Address: storetest.At("k")}, roused: make(chan struct{}, 1)}
		if err := w.join(two[i]); err != nil {
			t.Fatal(err)
		}
	}
	first, second := two[0], two[1]
	w.giveTurn(first.room, first)
	w.giveTurn(first.room, second)
	if _, turn := w.news(second); turn {
		t.Error("the second is given the turn that the first has")
	}
	w.leave(first)
	w.giveTurn(second.room, second)
	if _, turn := w.news(second); !turn {
		t.Error("the turn of one who has left is given to nobody")
	}
	w.leave(second)
}

func TestWhoComesToAQuietRoomIsToldWhatTheOthersKnow(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1, func(c *reservation.Reserve) { c.Fingerprint = storetest.Print(2) }))
	newCallers(t).wait(t.Context(), e, &reservation.Lookup{Address: a})
	waitForQuiet(t, e, a)
	// It asked when the key was another life's, which was its own operation, and comes
	// to the room only now.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	outcome, err := e.waiters.wait(ctx, storetest.Reserve(a, 2), &reservation.InProgress{}, time.Now().Add(10*time.Second))
	if refusal, is := outcome.(*reservation.Error); !is || refusal.Reason != reservation.FingerprintMismatch {
		t.Errorf("it hears %T %v", outcome, err)
	}
}

func TestALapseEndsTheWaitingAlsoInARoomThatIsQuiet(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1))
	c := newCallers(t)
	c.wait(t.Context(), e, reserveAs("k")(1))
	waitForQuiet(t, e, a)
	h.Advance(storetest.Lease)
	if heard := c.next(); heard.err != nil {
		t.Error(heard.err)
	} else if _, is := heard.outcome.(*reservation.Unresolved); !is {
		t.Errorf("it hears %T", heard.outcome)
	}
}

func TestWhatADaemonWritesItsOwnWaitersNeedNotWaitToRead(t *testing.T) {
	q := newQueue()
	var heard []*call
	w := writer{
		store: storetest.OpenMem(t).Store, queue: q, take: q.take, timeout: time.Minute,
		changed: func(calls []*call) { heard = append(heard, calls...) }, settled: func(*call) {},
	}
	c := newCall(t.Context(), storetest.Reserve(storetest.At("k"), 1), make(alone))
	if err := q.add(c); err != nil {
		t.Fatal(err)
	}
	w.apply(q.take())
	if len(heard) != 1 || heard[0] != c || !settles(c.outcome) {
		t.Errorf("of a write %v is told", heard)
	}
}

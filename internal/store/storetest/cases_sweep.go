package storetest

import (
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

func sweepCases() []Case {
	return []Case{
		{Rule: "a sweep takes what is expired and nothing else", Run: func(r *run) {
			finish := map[string]func(reservation.Address){
				"succeeded": func(a reservation.Address) { r.one(Complete(a, 1, "")) },
				"final":     func(a reservation.Address) { r.one(Fail(a, 1, reservation.ToldFinal, "")) },
				"retryable": func(a reservation.Address) { r.one(Fail(a, 1, reservation.ToldRetryable, "")) },
			}
			for name, end := range finish {
				r.one(Reserve(At(name), 1))
				end(At(name))
			}
			r.one(Reserve(At("processing"), 1))
			r.one(Reserve(At("unknown"), 1))
			r.one(Fail(At("unknown"), 1, reservation.ToldUnknown, ""))
			r.h.Advance(Retention - tick)
			equal(r, "swept too early", r.sweepAll(), 0)
			r.h.Advance(tick)
			equal(r, "swept", r.sweepAll(), len(finish))
			for name := range finish {
				if r.get(At(name)) != nil {
					r.Errorf("%s is still there", name)
				}
			}
			if r.get(At("processing")) == nil || r.get(At("unknown")) == nil {
				r.Errorf("an operation that may have happened was forgotten")
			}
		}},
		{Rule: "a sweep goes in small steps, oldest first, and tells how far it came", Run: func(r *run) {
			for i := range 25 {
				r.one(Reserve(At(fmt.Sprint("s-", i)), 1))
				r.one(Complete(At(fmt.Sprint("s-", i)), 1, ""))
				r.h.Advance(time.Second)
			}
			r.h.Advance(Retention)
			swept := r.sweep(10)
			equal(r, "swept", swept.Deleted, 10)
			equal(r, "more", swept.More, true)
			equal(r, "lag", swept.Lag, 15*time.Second)
			for i := range 25 {
				if gone := r.get(At(fmt.Sprint("s-", i))) == nil; gone != (i < 10) {
					r.Errorf("of 25, oldest first, number %d: gone is %v after sweeping 10", i, gone)
				}
			}
			equal(r, "swept", r.sweep(10).Deleted, 10)
			last := r.sweep(10)
			equal(r, "swept", last.Deleted, 5)
			equal(r, "more", last.More, false)
			equal(r, "lag", last.Lag, 0)
			equal(r, "swept", r.sweep(10).Deleted, 0)
		}},
		{Rule: "a key that was reserved anew is not swept for its past", Run: func(r *run) {
			a := At("anew")
			r.one(Reserve(a, 1))
			r.one(Complete(a, 1, "first life"))
			r.h.Advance(Retention)
			must[*reservation.Owned](r, r.one(Reserve(a, 2)))
			equal(r, "swept", r.sweepAll(), 0)
			must[*reservation.InProgress](r, r.one(Reserve(a, 3)))
			r.one(Complete(a, 2, "second life"))
			r.h.Advance(Retention - tick)
			equal(r, "swept", r.sweepAll(), 0)
			must[*reservation.Replay](r, r.one(Reserve(a, 3)))
		}},
		{Rule: "a longer retention told by Complete is kept", Run: func(r *run) {
			a := At("longer")
			r.one(Reserve(a, 1))
			complete := Complete(a, 1, "")
			complete.Retention = 2 * Retention
			r.one(complete)
			r.h.Advance(2*Retention - tick)
			equal(r, "swept", r.sweepAll(), 0)
			must[*reservation.Replay](r, r.one(Reserve(a, 2)))
			r.h.Advance(tick)
			equal(r, "swept", r.sweepAll(), 1)
		}},
	}
}

package storetest

import (
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

const tick = time.Microsecond

func timeCases() []Case {
	return []Case{
		{Rule: "a lease holds to its last microsecond, in every length", Run: func(r *run) {
			for i, lease := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 1234567 * tick, 90 * time.Second, time.Hour} {
				hold, rerun := At(fmt.Sprint("hold-", i)), At(fmt.Sprint("rerun-", i))
				r.h.Advance(333 * tick)
				granted := must[*reservation.Owned](r, r.one(Reserve(hold, 1, LeaseOf(lease))))
				equal(r, "lease end", granted.LeaseExpiresAt, r.h.Now().Add(lease))
				r.one(Reserve(rerun, 1, LeaseOf(lease), Rerunnable))
				r.h.Advance(lease - tick)
				must[*reservation.InProgress](r, r.one(Reserve(hold, 2)))
				must[*reservation.InProgress](r, r.one(Reserve(rerun, 2)))
				r.h.Advance(tick)
				equal(r, "since", must[*reservation.Unresolved](r, r.one(Reserve(hold, 2))).Since, granted.LeaseExpiresAt)
				taken := must[*reservation.Owned](r, r.one(Reserve(rerun, 2)))
				equal(r, "attempt", taken.Attempt, 2)
				equal(r, "takeover", taken.Takeover, true)
			}
		}},
		{Rule: "a retention holds to its last microsecond, swept or not", Run: func(r *run) {
			for i, retention := range []time.Duration{time.Second, 1234567 * tick, time.Hour, 400 * 24 * time.Hour} {
				for _, swept := range []bool{false, true} {
					a := At(fmt.Sprint("kept-", i, "-", swept))
					r.one(Reserve(a, 1, RetentionOf(retention)))
					r.h.Advance(Lease / 2)
					done := must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
					equal(r, "expiry", done.ExpiresAt, r.h.Now().Add(retention))
					r.h.Advance(retention - tick)
					if swept {
						r.sweepAll()
					}
					must[*reservation.Replay](r, r.one(Reserve(a, 2)))
					r.h.Advance(tick)
					if swept {
						r.sweepAll()
					}
					r.refused(r.one(Lookup(a)), reservation.NotFound)
					equal(r, "attempt", must[*reservation.Owned](r, r.one(Reserve(a, 2))).Attempt, 1)
				}
			}
		}},
		{Rule: "a failure lives as long as a success", Run: func(r *run) {
			a := At("failed")
			r.one(Reserve(a, 1))
			r.h.Advance(3 * Lease)
			r.one(Fail(a, 1, reservation.ToldFinal, "declined"))
			r.sweepAll()
			r.h.Advance(Retention - tick)
			r.sweepAll()
			equal(r, "state", must[*reservation.Replay](r, r.one(Reserve(a, 2))).State, reservation.FailedFinal)
			r.h.Advance(tick)
			must[*reservation.Owned](r, r.one(Reserve(a, 2)))
		}},
		{Rule: "a scheduled retry keeps the key until its time", Run: func(r *run) {
			a := At("retry")
			r.one(Reserve(a, 1))
			fail := Fail(a, 1, reservation.ToldRetryable, "busy")
			fail.RetryAfter = 5 * time.Minute
			r.one(fail)
			r.h.Advance(5*time.Minute - tick)
			waiting := must[*reservation.InProgress](r, r.one(Reserve(a, 2)))
			equal(r, "retry after", waiting.RetryAfter, tick)
			r.h.Advance(tick)
			equal(r, "attempt", must[*reservation.Owned](r, r.one(Reserve(a, 2))).Attempt, 2)
		}},
		{Rule: "an unknown outcome is never forgotten", Run: func(r *run) {
			told, silent := At("told"), At("silent")
			r.one(Reserve(told, 1))
			r.one(Reserve(silent, 1))
			r.one(Fail(told, 1, reservation.ToldUnknown, "timeout"))
			r.h.Advance(10 * 365 * 24 * time.Hour)
			equal(r, "swept", r.sweepAll(), 0)
			must[*reservation.Unresolved](r, r.one(Reserve(told, 2)))
			must[*reservation.Unresolved](r, r.one(Reserve(silent, 2)))
		}},
		{Rule: "extending moves the lease and never shortens it", Run: func(r *run) {
			a := At("extend")
			r.one(Reserve(a, 1, Rerunnable))
			short := Extend(a, 1)
			short.Lease = reservation.MinLease
			equal(r, "remaining", must[*reservation.Extended](r, r.one(short)).LeaseRemaining, Lease)
			r.h.Advance(Lease / 2)
			equal(r, "remaining", must[*reservation.Extended](r, r.one(Extend(a, 1))).LeaseRemaining, Lease)
			r.h.Advance(Lease - tick)
			must[*reservation.InProgress](r, r.one(Reserve(a, 2)))
			r.h.Advance(tick)
			equal(r, "attempt", must[*reservation.Owned](r, r.one(Reserve(a, 2))).Attempt, 2)
			r.refused(r.one(Extend(a, 1)), reservation.StaleToken)
		}},
	}
}

package storetest

import (
	"fmt"
	"reflect"

	"github.com/idemd/idemd/internal/reservation"
)

func keptCases() []Case {
	return []Case{
		{Rule: "every field of a record is kept", Run: func(r *run) {
			a := At("all-fields")
			outcomes := fillRecord(r, a)
			rec := r.get(a)
			for what, missing := range map[string]bool{
				"history": len(rec.History) < 4, "evidence": len(rec.Evidence) != 2, "spent": len(rec.Spent) != 2,
				"checkpoint": string(rec.Checkpoint) != "page 2\x00\xff", "result": rec.Result == nil,
				"owner": rec.Owner != "caller-3", "policy version": rec.PolicyVersion != "2026-11",
			} {
				if missing {
					r.Errorf("%s is not kept: %+v", what, rec)
				}
			}
			equal(r, "checkpoint sequence", rec.CheckpointSequence, uint64(1<<63+5))
			if found := must[*reservation.Found](r, outcomes); !reflect.DeepEqual(found.Record, rec) {
				r.Errorf("Lookup shows %+v, stored is %+v", found.Record, rec)
			}
		}},
		{Rule: "everything outlives the process", Needs: NeedReopen, Run: func(r *run) {
			all := At("all-fields")
			fillRecord(r, all) // moves the clock: it comes first, or the leases below lapse
			before := r.get(all)
			for i := range 20 {
				a := At(fmt.Sprint("kept-", i))
				r.one(Reserve(a, 1))
				if i%2 == 0 {
					r.one(Complete(a, 1, fmt.Sprint("result-", i)))
				}
			}
			r.h.Reopen()
			if after := r.get(all); !reflect.DeepEqual(before, after) {
				r.Errorf("before closing %+v, after opening %+v", before, after)
			}
			for i := range 20 {
				a := At(fmt.Sprint("kept-", i))
				if i%2 == 0 {
					want := Answer(fmt.Sprint("result-", i))
					if replay := must[*reservation.Replay](r, r.one(Reserve(a, 2))); !replay.Result.Equal(&want) {
						r.Errorf("%v replays %+v", a, replay.Result)
					}
					continue
				}
				must[*reservation.InProgress](r, r.one(Reserve(a, 2)))
				equal(r, "repeated", must[*reservation.Owned](r, r.one(Reserve(a, 1))).Repeated, true)
			}
		}},
		{Rule: "the checkpoint goes from attempt to attempt", Run: func(r *run) {
			a := At("checkpoint")
			r.one(Reserve(a, 1, Rerunnable))
			checkpoint := func(n int, text string, sequence uint64) {
				c := Extend(a, n)
				c.Checkpoint, c.CheckpointSequence = []byte(text), sequence
				must[*reservation.Extended](r, r.one(c))
			}
			checkpoint(1, "two", 2)
			checkpoint(1, "one", 1)
			r.one(Fail(a, 1, reservation.ToldRetryable, "try again"))
			second := must[*reservation.Owned](r, r.one(Reserve(a, 2)))
			equal(r, "checkpoint", string(second.Checkpoint), "two")
			want := Answer("try again")
			if !second.LastFailure.Equal(&want) {
				r.Errorf("the last failure is %+v", second.LastFailure)
			}
			r.h.Advance(Lease)
			equal(r, "checkpoint", string(must[*reservation.Owned](r, r.one(Reserve(a, 3))).Checkpoint), "two")
			checkpoint(3, "", 1)
			equal(r, "checkpoint", string(must[*reservation.Owned](r, r.one(Reserve(a, 3))).Checkpoint), "")
		}},
		{Rule: "the policy version of the first attempt is given to every later one", Run: func(r *run) {
			a := At("tariff")
			r.one(Reserve(a, 1))
			r.one(Fail(a, 1, reservation.ToldRetryable, ""))
			owned := must[*reservation.Owned](r, r.one(Reserve(a, 2, func(c *reservation.Reserve) { c.PolicyVersion = "2027-01" })))
			equal(r, "policy version", owned.PolicyVersion, "2026-11")
			equal(r, "policy version stored", r.get(a).PolicyVersion, "2026-11")
		}},
		{Rule: "every owner is told when the first attempt was granted, and of a forgotten key that is used again, a later time", Run: func(r *run) {
			a := At("life")
			first := must[*reservation.Owned](r, r.one(Reserve(a, 1)))
			equal(r, "first grant", first.ReservedAt, r.h.Now())
			r.h.Advance(tick)
			repeated := must[*reservation.Owned](r, r.one(Reserve(a, 1)))
			equal(r, "told again", repeated.ReservedAt, first.ReservedAt)
			r.one(Fail(a, 1, reservation.ToldRetryable, ""))
			second := must[*reservation.Owned](r, r.one(Reserve(a, 2)))
			equal(r, "told the next attempt", second.ReservedAt, first.ReservedAt)
			r.one(Complete(a, 2, ""))
			r.h.Advance(Retention)
			other := must[*reservation.Owned](r, r.one(Reserve(a, 3)))
			equal(r, "told the next life", other.ReservedAt, r.h.Now())
		}},
		{Rule: "who tells an outcome is told the state that it has led to", Run: func(r *run) {
			told := func(c reservation.Command) reservation.State { return must[*reservation.Recorded](r, r.one(c)).State }
			a, b, c := At("last"), At("unknown"), At("done")
			r.one(Reserve(a, 1, AttemptsOf(2)))
			equal(r, "a failure", told(Fail(a, 1, reservation.ToldRetryable, "")), reservation.FailedRetryable)
			r.one(Reserve(a, 2))
			equal(r, "the last attempt's failure", told(Fail(a, 2, reservation.ToldRetryable, "")), reservation.FailedFinal)
			equal(r, "the same again", told(Fail(a, 2, reservation.ToldRetryable, "")), reservation.FailedFinal)
			r.one(Reserve(b, 1))
			equal(r, "unknown", told(Fail(b, 1, reservation.ToldUnknown, "")), reservation.Unknown)
			r.one(Reserve(c, 1))
			equal(r, "done", told(Complete(c, 1, "")), reservation.Succeeded)
			equal(r, "done again", told(Complete(c, 1, "")), reservation.Succeeded)
		}},
		{Rule: "what is finer than a microsecond is not kept, and nothing is damaged by it", Run: func(r *run) {
			a := At("nanoseconds")
			reserve := Reserve(a, 1)
			reserve.Lease, reserve.Retention = Lease+1, Retention+1
			owned := must[*reservation.Owned](r, r.one(reserve))
			equal(r, "lease end", owned.LeaseExpiresAt, r.h.Now().Add(Lease+tick))
			complete := Complete(a, 1, "")
			complete.Retention = 2*Retention + 1
			recorded := must[*reservation.Recorded](r, r.one(complete))
			equal(r, "expiry", recorded.ExpiresAt, r.h.Now().Add(2*Retention+tick))
			equal(r, "stored retention", r.get(a).Retention, 2*Retention+tick)
		}},
		{Rule: "fences and versions grow beyond the life of a record", Run: func(r *run) {
			a := At("fences")
			fence, version := int64(0), int64(0)
			grow := func(n int) {
				owned := must[*reservation.Owned](r, r.one(Reserve(a, n)))
				now := r.get(a).Version
				if owned.Fence <= fence || now <= version {
					r.Fatalf("fence %d follows %d, version %d follows %d", owned.Fence, fence, now, version)
				}
				fence, version = owned.Fence, now
			}
			for round := range 3 {
				for attempt := range 5 { // all in one microsecond
					grow(10*round + attempt)
					r.one(Fail(a, 10*round+attempt, reservation.ToldRetryable, ""))
				}
				r.h.Advance(Retention)
				if round%2 == 0 {
					r.sweepAll()
				}
			}
		}},
	}
}

// fillRecord drives one record through everything that leaves a trace, and looks it
// up.
func fillRecord(r *run, a reservation.Address) reservation.Outcome {
	r.Helper()
	r.one(Reserve(a, 1, Rerunnable))
	r.h.Advance(Lease)
	r.one(Reserve(a, 2))
	r.one(Complete(a, 1, "late"))
	r.one(Complete(a, 99, "stranger"))
	r.one(Fail(a, 2, reservation.ToldUnknown, "timeout"))
	r.one(Reserve(a, 3))
	extend := Extend(a, 3)
	extend.Checkpoint, extend.CheckpointSequence = []byte("page 2\x00\xff"), 1<<63+5
	r.one(extend)
	r.one(&reservation.Resolve{
		Address: a, ExpectedVersion: r.get(a).Version, Verdict: reservation.VerdictNotExecuted, BreakLease: true,
		Actor: "olga", Reason: "the bank\nsays no", Evidence: "ticket 4711 \u2713",
	})
	r.one(Complete(a, 3, "but it was done"))
	return r.one(Lookup(a))
}

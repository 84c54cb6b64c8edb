package storetest

import (
	"bytes"

	"github.com/idemd/idemd/internal/reservation"
)

func plainCases() []Case {
	return []Case{
		{Rule: "one owner, then everybody hears its answer, byte for byte", Run: func(r *run) {
			a := At("charge-1")
			owned := must[*reservation.Owned](r, r.one(Reserve(a, 1)))
			equal(r, "attempt", owned.Attempt, 1)
			equal(r, "lease", owned.LeaseRemaining, Lease)
			must[*reservation.InProgress](r, r.one(Reserve(a, 2)))
			must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
			for caller := range 3 {
				replay := must[*reservation.Replay](r, r.one(Reserve(a, caller)))
				want := Answer("done")
				if !replay.Result.Equal(&want) {
					r.Fatalf("replayed %+v, want %+v", replay.Result, want)
				}
			}
		}},
		{Rule: "a result of the largest size is replayed whole", Run: func(r *run) {
			a := At("big")
			complete := Complete(a, 1, "")
			complete.Result.Body = bytes.Repeat([]byte("0123456789abcdef"), reservation.MaxBodyBytes/16)
			complete.Result.Headers = nil
			for range reservation.MaxHeaders {
				complete.Result.Headers = append(complete.Result.Headers, reservation.Header{Name: "h", Value: bytes.Repeat([]byte{0xfe}, 255)})
			}
			r.one(Reserve(a, 1))
			must[*reservation.Recorded](r, r.one(complete))
			if replay := must[*reservation.Replay](r, r.one(Reserve(a, 2))); !replay.Result.Equal(&complete.Result) {
				r.Fatalf("the replay differs from the result")
			}
		}},
		{Rule: "an empty result is replayed as empty", Run: func(r *run) {
			a := At("empty")
			r.one(Reserve(a, 1))
			must[*reservation.Recorded](r, r.one(&reservation.Complete{Address: a, Token: Token(1)}))
			replay := must[*reservation.Replay](r, r.one(Reserve(a, 2)))
			if !replay.Result.Equal(&reservation.Result{}) {
				r.Fatalf("replayed %+v, want an empty result", replay.Result)
			}
		}},
		{Rule: "the same fingerprint is demanded on every path", Run: func(r *run) {
			a := At("misuse")
			other := func() *reservation.Reserve {
				return Reserve(a, 9, func(c *reservation.Reserve) { c.Fingerprint = Print(2) })
			}
			mismatch := func() { r.Helper(); r.refused(r.one(other()), reservation.FingerprintMismatch) }
			r.one(Reserve(a, 1, Rerunnable))
			mismatch()
			r.h.Advance(Lease)
			mismatch()
			r.one(Reserve(a, 2))
			mismatch()
			r.one(Fail(a, 2, reservation.ToldRetryable, "later"))
			mismatch()
			r.one(Reserve(a, 3))
			r.one(Complete(a, 3, "done"))
			mismatch()
			r.h.Advance(Retention)
			must[*reservation.Owned](r, r.one(other()))
		}},
		{Rule: "a token is let back in, and nobody else", Run: func(r *run) {
			a := At("lost-reply")
			first := must[*reservation.Owned](r, r.one(Reserve(a, 1)))
			again := must[*reservation.Owned](r, r.one(Reserve(a, 1)))
			equal(r, "repeated", again.Repeated, true)
			equal(r, "fence", again.Fence, first.Fence)
			equal(r, "attempt", again.Attempt, first.Attempt)
			must[*reservation.InProgress](r, r.one(Reserve(a, 2)))
		}},
		{Rule: "the same outcome again gets the same answer, another is refused", Run: func(r *run) {
			a := At("twice")
			r.one(Reserve(a, 1))
			first := must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
			r.h.Advance(Lease)
			again := must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
			equal(r, "repeated", again.Repeated, true)
			equal(r, "version", again.Version, first.Version)
			equal(r, "expiry", again.ExpiresAt, first.ExpiresAt)
			r.refused(r.one(Complete(a, 1, "other")), reservation.AlreadyFinished)
			r.refused(r.one(Fail(a, 1, reservation.ToldRetryable, "")), reservation.AlreadyFinished)
			r.refused(r.one(Extend(a, 1)), reservation.AlreadyFinished)
		}},
		{Rule: "nothing is known of an address that was never reserved", Run: func(r *run) {
			a := At("nobody")
			for _, c := range []reservation.Command{
				Extend(a, 1), Complete(a, 1, ""), Fail(a, 1, reservation.ToldFinal, ""), Lookup(a),
				Resolve(a, 1, reservation.VerdictSucceeded, ""),
			} {
				r.refused(r.one(c), reservation.NotFound)
			}
			if r.get(a) != nil {
				r.Fatalf("a record was made")
			}
		}},
		{Rule: "an old retry never runs as new", Run: func(r *run) {
			a := At("old")
			r.one(Reserve(a, 1))
			r.one(Complete(a, 1, "done"))
			began := r.h.Now()
			r.h.Advance(Retention)
			late := func(c *reservation.Reserve) { c.FirstAttemptAt = began }
			r.refused(r.one(Reserve(a, 2, late)), reservation.KeyMayHaveExpired)
			r.sweepAll()
			r.refused(r.one(Reserve(a, 2, late)), reservation.KeyMayHaveExpired)
			must[*reservation.Owned](r, r.one(Reserve(a, 2)))
		}},
		{Rule: "a verdict needs the version it is about", Run: func(r *run) {
			a := At("verdict")
			r.one(Reserve(a, 1))
			r.refused(r.one(Resolve(a, r.get(a).Version, reservation.VerdictSucceeded, "")), reservation.NotUnresolved)
			r.h.Advance(Lease)
			unresolved := must[*reservation.Unresolved](r, r.one(Reserve(a, 2)))
			r.refused(r.one(Resolve(a, unresolved.Version+1, reservation.VerdictNotExecuted, "")), reservation.VersionConflict)
			must[*reservation.Recorded](r, r.one(Resolve(a, unresolved.Version, reservation.VerdictNotExecuted, "")))
			again := must[*reservation.Recorded](r, r.one(Resolve(a, unresolved.Version, reservation.VerdictNotExecuted, "")))
			equal(r, "repeated", again.Repeated, true)
			equal(r, "attempt", must[*reservation.Owned](r, r.one(Reserve(a, 2))).Attempt, 2)
		}},
	}
}

package storetest

import (
	"reflect"

	"github.com/idemd/idemd/internal/reservation"
)

func eraseCases() []Case {
	return []Case{
		{Rule: "an erased result is gone, and the operation still does not run again", Run: func(r *run) {
			a := At("person")
			r.one(Reserve(a, 1, Traced))
			checkpoint := Extend(a, 1)
			checkpoint.Checkpoint, checkpoint.CheckpointSequence = []byte("iban"), 1
			r.one(checkpoint)
			r.one(Complete(a, 1, "name and address"))
			before := r.get(a)
			r.h.Advance(tick)
			erased := must[*reservation.Recorded](r, r.one(Erase(a)))
			equal(r, "version", erased.Version, before.Version+1)
			left := r.get(a)
			want := *before
			want.Version, want.ErasedAt, want.Checkpoint = before.Version+1, r.h.Now(), nil
			want.Result = &reservation.Result{Status: before.Result.Status, BodyOmitted: true}
			if !reflect.DeepEqual(left, &want) {
				r.Errorf("left is %+v %+v, want %+v %+v", left, left.Result, want, want.Result)
			}
			replay := must[*reservation.Replay](r, r.one(Reserve(a, 2)))
			equal(r, "replayed", reflect.DeepEqual(replay.Result, want.Result), true)
			equal(r, "erased again: repeated", must[*reservation.Recorded](r, r.one(Erase(a))).Repeated, true)
			// What its owner repeats stores nothing.
			equal(r, "told again: repeated", must[*reservation.Recorded](r, r.one(Complete(a, 1, "name and address"))).Repeated, true)
			if again := r.get(a); !reflect.DeepEqual(again, left) {
				r.Errorf("told again, left is %+v", again)
			}
			r.refused(r.one(Fail(a, 1, reservation.ToldFinal, "other")), reservation.AlreadyFinished)
		}},
		{Rule: "only what has finished is erased, and only in the version that was looked at", Run: func(r *run) {
			a := At("open")
			r.refused(r.one(Erase(a)), reservation.NotFound)
			r.one(Reserve(a, 1))
			r.refused(r.one(Erase(a)), reservation.NotFinished)
			r.one(Fail(a, 1, reservation.ToldUnknown, "timeout"))
			r.refused(r.one(Erase(a)), reservation.NotFinished)
			r.one(Fail(a, 1, reservation.ToldFinal, "declined"))
			erase := Erase(a)
			erase.ExpectedVersion = r.get(a).Version - 1
			err := must[*reservation.Error](r, r.one(erase))
			equal(r, "reason", err.Reason, reservation.VersionConflict)
			equal(r, "version", err.Version, r.get(a).Version)
			equal(r, "erased", r.get(a).ErasedAt, 0)
			erase.ExpectedVersion = r.get(a).Version
			must[*reservation.Recorded](r, r.one(erase))
			equal(r, "erased", r.get(a).ErasedAt, r.h.Now())
			equal(r, "the failure told again: repeated",
				must[*reservation.Recorded](r, r.one(Fail(a, 1, reservation.ToldFinal, "declined"))).Repeated, true)
			r.h.Advance(Retention)
			r.refused(r.one(Erase(a)), reservation.NotFound)
		}},
		{Rule: "an erasure ends with the result that it was about", Run: func(r *run) {
			a := At("next-attempt")
			r.one(Reserve(a, 1))
			r.one(Fail(a, 1, reservation.ToldRetryable, "name"))
			r.one(Erase(a))
			owned := must[*reservation.Owned](r, r.one(Reserve(a, 2)))
			equal(r, "last failure", reflect.DeepEqual(owned.LastFailure, &reservation.Result{Status: 201, BodyOmitted: true}), true)
			equal(r, "erased", r.get(a).ErasedAt, 0)
			r.one(Complete(a, 2, "done"))
			r.bodyShown(a, "done")
			r.refused(r.one(Complete(a, 2, "done otherwise")), reservation.AlreadyFinished)
			r.one(Erase(a))
			r.h.Advance(Retention)
			r.one(Reserve(a, 3))
			r.one(Complete(a, 3, "next life"))
			equal(r, "erased", r.get(a).ErasedAt, 0)
			r.bodyShown(a, "next life")
		}},
		{Rule: "where the first attempt was traced is kept, through every attempt of a life", Run: func(r *run) {
			a := At("traced")
			none := reservation.TraceContext{}
			r.one(Reserve(a, 1, Traced))
			r.one(Fail(a, 1, reservation.ToldRetryable, ""))
			r.one(Reserve(a, 2, func(c *reservation.Reserve) { c.Trace = Trace(9) }))
			r.one(Complete(a, 2, ""))
			equal(r, "replayed", must[*reservation.Replay](r, r.one(Reserve(a, 3))).Trace, Trace(1))
			equal(r, "looked up", must[*reservation.Found](r, r.one(Lookup(a))).Record.Trace, Trace(1))
			r.h.Advance(Retention)
			r.one(Reserve(a, 4))
			equal(r, "of the next life, which was not traced", r.get(a).Trace, none)
			r.one(Reserve(At("plain"), 1))
			equal(r, "of one that was not traced", r.get(At("plain")).Trace, none)
		}},
	}
}

// Traced gives a Reserve a trace context.
func Traced(c *reservation.Reserve) { c.Trace = Trace(1) }

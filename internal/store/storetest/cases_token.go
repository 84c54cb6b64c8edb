package storetest

import (
	"reflect"

	"github.com/idemd/idemd/internal/reservation"
)

func tokenCases() []Case {
	return []Case{
		{Rule: "without the current token nothing changes but evidence", Run: func(r *run) {
			a := At("forged")
			r.one(Reserve(a, 1))
			before := *r.get(a)
			r.refused(r.one(Complete(a, 7, "mine")), reservation.StaleToken)
			r.refused(r.one(Fail(a, 7, reservation.ToldRetryable, "free it")), reservation.StaleToken)
			r.refused(r.one(Extend(a, 7)), reservation.StaleToken)
			after := *r.get(a)
			equal(r, "pieces of evidence", len(after.Evidence), 2)
			after.Evidence = before.Evidence
			if !reflect.DeepEqual(before, after) {
				r.Fatalf("the record changed from %+v to %+v", before, after)
			}
			must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
		}},
		{Rule: "who was taken over can do nothing", Run: func(r *run) {
			a := At("late")
			first := must[*reservation.Owned](r, r.one(Reserve(a, 1, Rerunnable)))
			r.h.Advance(Lease)
			second := must[*reservation.Owned](r, r.one(Reserve(a, 2)))
			if second.Fence <= first.Fence {
				r.Fatalf("fence %d follows %d", second.Fence, first.Fence)
			}
			r.refused(r.one(Complete(a, 1, "late")), reservation.StaleToken)
			r.refused(r.one(Fail(a, 1, reservation.ToldRetryable, "late")), reservation.StaleToken)
			r.refused(r.one(Extend(a, 1)), reservation.StaleToken)
			must[*reservation.InProgress](r, r.one(Reserve(a, 3)))
			must[*reservation.Recorded](r, r.one(Complete(a, 2, "done")))
			r.refused(r.one(Complete(a, 1, "late again")), reservation.StaleToken)
			must[*reservation.Replay](r, r.one(Reserve(a, 1)))
		}},
		{Rule: "a finished record is never taken over", Run: func(r *run) {
			a := At("done-late")
			r.one(Reserve(a, 1, Rerunnable))
			r.h.Advance(2 * Lease)
			must[*reservation.Recorded](r, r.one(Complete(a, 1, "done")))
			r.h.Advance(2 * Lease)
			must[*reservation.Replay](r, r.one(Reserve(a, 2)))
		}},
		{Rule: "no token gets two attempts of a record", Run: func(r *run) {
			a := At("ghost")
			for attempt := 1; attempt <= 3; attempt++ {
				must[*reservation.Owned](r, r.one(Reserve(a, attempt)))
				r.one(Fail(a, attempt, reservation.ToldRetryable, "again"))
				for token := 1; token <= attempt; token++ {
					r.refused(r.one(Reserve(a, token)), reservation.TokenSpent)
				}
			}
		}},
		{Rule: "an operation that may have happened is held, and its owner may still tell", Run: func(r *run) {
			a := At("held")
			r.one(Reserve(a, 1))
			r.h.Advance(Lease)
			must[*reservation.Unresolved](r, r.one(Reserve(a, 2)))
			must[*reservation.Recorded](r, r.one(Complete(a, 1, "late but true")))
			must[*reservation.Replay](r, r.one(Reserve(a, 2)))
		}},
	}
}

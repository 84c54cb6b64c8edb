package storetest

import (
	"context"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func faultCases() []Case {
	return []Case{
		{Rule: "a damaged record is kept and reported, and hides no other", Needs: NeedDamage, Faults: true, Run: func(r *run) {
			for i, key := range []string{"a", "b", "c"} {
				r.one(Reserve(At(key), i))
				r.one(Complete(At(key), i, key))
			}
			r.h.Damage(At("b"))
			outcomes := r.apply(Reserve(At("a"), 9), Reserve(At("b"), 9), Complete(At("b"), 1, ""), Reserve(At("c"), 9))
			must[*reservation.Replay](r, outcomes[0])
			r.refused(outcomes[1], reservation.RecordUnreadable)
			r.refused(outcomes[2], reservation.RecordUnreadable)
			must[*reservation.Replay](r, outcomes[3])

			entries := r.pages(store.Query{Limit: 10})
			equal(r, "entries", len(entries), 3)
			equal(r, "the damaged one is listed as", entries[1].Address, At("b")) // perhaps whole: the damage may be where no list looks
			for i, found := range r.read(store.Want(At("a"), At("b"), At("c"))...).Found {
				if found.Unreadable != (i == 1) || (found.Record == nil) != (i == 1) {
					r.Errorf("Get shows %+v at place %d", found, i)
				}
			}
			r.h.Advance(Retention)
			r.sweepAll()
			report := r.check()
			if report.FaultCount == 0 || report.Faults[0].Address != At("b") {
				r.Errorf("Check reports %+v after the others were swept", report)
			}
		}},
		{Rule: "a batch whose context has ended does nothing", Run: func(r *run) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r.refused(r.h.Store.Apply(ctx, []reservation.Command{Reserve(At("gone"), 1)})[0], reservation.StoreUnavailable)
			if r.get(At("gone")) != nil {
				r.Errorf("it was stored")
			}
		}},
		{Rule: "a closed store can't answer, and says so", Needs: NeedReopen, Run: func(r *run) {
			r.one(Reserve(At("k"), 1))
			closed := r.h.Store
			r.h.Reopen()
			r.refused(closed.Apply(context.Background(), []reservation.Command{Reserve(At("k"), 2)})[0], reservation.StoreUnavailable)
			if _, err := closed.Get(context.Background(), store.Want(At("k"))); err == nil {
				r.Errorf("Get answers")
			}
			if err := closed.Ping(context.Background()); err == nil {
				r.Errorf("Ping answers")
			}
			if err := closed.Close(); err != nil {
				r.Errorf("closing again: %v", err)
			}
			must[*reservation.InProgress](r, r.one(Reserve(At("k"), 2)))
		}},
	}
}

package storetest

import (
	"context"
	"fmt"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func readCases() []Case {
	return []Case{
		{Rule: "Get answers in the order asked, with the store's clock", Run: func(r *run) {
			r.one(Reserve(At("b"), 2))
			r.one(Reserve(At("a"), 1))
			r.h.Advance(Lease)
			snapshot, err := r.h.Store.Get(context.Background(), []reservation.Address{At("b"), At("none"), At("a"), At("b")})
			if err != nil {
				r.Fatalf("Get: %v", err)
			}
			equal(r, "clock", snapshot.Now, r.h.Now())
			equal(r, "records", len(snapshot.Records), 4)
			for i, owner := range []string{"caller-2", "", "caller-1", "caller-2"} {
				if rec := snapshot.Records[i]; (rec == nil) != (owner == "") || rec != nil && rec.Owner != owner {
					r.Errorf("record %d is %+v, want %q's", i, rec, owner)
				}
			}
		}},
		{Rule: "a list has pages in the order of addresses and stays within its tenant", Run: func(r *run) {
			var want []reservation.Address
			for i := range 23 {
				a := At(fmt.Sprintf("list-%02d", i))
				want = append(want, a)
				r.one(Reserve(a, i))
				if i%3 == 0 {
					r.one(Complete(a, i, ""))
				}
				r.one(Reserve(reservation.Address{Tenant: "other", Namespace: "payments", Key: a.Key}, i))
				r.one(Reserve(reservation.Address{Tenant: "acme", Namespace: "mails", Key: a.Key}, i))
			}
			for _, open := range []bool{false, true} {
				query := store.Query{Tenant: "acme", Namespace: "payments", OpenOnly: open, Limit: 5}
				got := r.pages(query)
				i := 0
				for n, a := range want {
					if open && n%3 == 0 {
						continue
					}
					if i >= len(got) || got[i].Address != a || got[i].Record == nil {
						r.Fatalf("open only %v: entry %d is not %v", open, i, a)
					}
					i++
				}
				equal(r, "entries", len(got), i)
			}
			equal(r, "entries of a tenant", len(r.pages(store.Query{Tenant: "acme", Limit: 7})), 46)
			equal(r, "entries of all", len(r.pages(store.Query{Limit: 7})), 69)
			equal(r, "entries of nobody", len(r.pages(store.Query{Tenant: "acm", Limit: 7})), 0)
		}},
		{Rule: "the statistics tell live, lapsed and unresolved apart", Run: func(r *run) {
			r.one(Reserve(At("hold"), 1))
			r.one(Reserve(At("rerun"), 1, Rerunnable))
			r.one(Reserve(At("told"), 1))
			r.h.Advance(Lease / 2)
			r.one(Fail(At("told"), 1, reservation.ToldUnknown, ""))
			r.stats(2, 0, 1, r.h.Now())
			told := r.h.Now()
			r.h.Advance(Lease / 2)
			r.one(Reserve(At("live"), 1))
			r.one(Reserve(At("done"), 1))
			r.one(Complete(At("done"), 1, ""))
			r.stats(1, 1, 2, told)
		}},
	}
}

func (r *run) pages(query store.Query) (all []store.Entry) {
	r.Helper()
	for range 1000 {
		entries, err := r.h.Store.List(context.Background(), query)
		if err != nil {
			r.Fatalf("List: %v", err)
		}
		if len(entries) > query.Limit {
			r.Fatalf("a page of %d has %d entries", query.Limit, len(entries))
		}
		all = append(all, entries...)
		if len(entries) < query.Limit {
			return all
		}
		query.After = entries[len(entries)-1].Address
	}
	r.Fatalf("the list does not end")
	return nil
}

func (r *run) stats(live, lapsed, unknown int64, oldest reservation.Time) {
	r.Helper()
	stats, err := r.h.Store.Stats(context.Background())
	if err != nil {
		r.Fatalf("Stats: %v", err)
	}
	equal(r, "live", stats.Live, live)
	equal(r, "lapsed", stats.Lapsed, lapsed)
	equal(r, "unknown", stats.Unknown, unknown)
	equal(r, "oldest unresolved", stats.OldestUnresolved, oldest)
}

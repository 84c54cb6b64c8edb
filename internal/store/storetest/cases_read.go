package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func readCases() []Case {
	return []Case{
		{Rule: "Get answers in the order asked, with the store's clock", Run: func(r *run) {
			r.one(Reserve(At("b"), 2))
			r.one(Reserve(At("a"), 1))
			r.h.Advance(Lease)
			snapshot := r.read(store.Want(At("b"), At("none"), At("a"), At("b"))...)
			equal(r, "clock", snapshot.Now, r.h.Now())
			equal(r, "records", len(snapshot.Found), 4)
			for i, owner := range []string{"caller-2", "", "caller-1", "caller-2"} {
				found := snapshot.Found[i]
				equal(r, "index", found.Index, i)
				if rec := found.Record; (rec == nil) != (owner == "") || rec != nil && rec.Owner != owner {
					r.Errorf("record %d is %+v, want %q's", i, rec, owner)
				}
			}
		}},
		{Rule: "what is as it was last seen is not read again, and every change is", Run: func(r *run) {
			a, quiet := At("changing"), At("quiet")
			r.one(Reserve(quiet, 1))
			seen := map[reservation.Address]store.Seen{quiet: r.read(store.Want(quiet)...).Found[0].Seen}
			look := func(what string, changes bool) {
				r.Helper()
				snapshot := r.read(
					store.Wanted{Address: quiet, Seen: seen[quiet]}, store.Wanted{Address: a, Seen: seen[a]},
					store.Wanted{Address: At("none")}, store.Wanted{Address: quiet})
				equal(r, "clock", snapshot.Now, r.h.Now())
				want := []int{2, 3}
				if changes {
					want = []int{1, 2, 3}
				}
				var got []int
				for _, found := range snapshot.Found {
					got = append(got, found.Index)
					if found.Index == 1 {
						seen[a] = found.Seen
					}
				}
				if !slices.Equal(got, want) {
					r.Fatalf("after %s Get reads %v, want %v", what, got, want)
				}
			}
			look("nothing", true)
			for _, change := range []reservation.Command{
				Reserve(a, 1), Extend(a, 1), Fail(a, 1, reservation.ToldRetryable, "no"), Reserve(a, 2), Complete(a, 2, "yes"),
			} {
				r.h.Advance(time.Second)
				r.one(change)
				look(fmt.Sprintf("%T", change), true)
				look("a look", false)
				if _, extends := change.(*reservation.Extend); extends {
					r.h.Advance(Lease / 2)
					look("time alone", false)
				}
			}
			r.h.Advance(Retention)
			look("its expiry, which is time alone", false)
			r.sweepAll()
			look("a sweep", true)
			r.one(Reserve(a, 3))
			look("a new life", true)
			look("a look", false)
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
				query := store.Query{Tenant: "acme", Namespace: "payments", Limit: 5}
				if open {
					query.State = reservation.Processing
				}
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
		page, err := r.h.Store.List(context.Background(), query)
		if err != nil {
			r.Fatalf("List: %v", err)
		}
		if len(page.Entries) > query.Limit {
			r.Fatalf("a page of %d has %d entries", query.Limit, len(page.Entries))
		}
		all = append(all, page.Entries...)
		if !page.More {
			return all
		}
		query.After = page.End
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

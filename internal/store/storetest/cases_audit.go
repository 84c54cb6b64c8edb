package storetest

import (
	"context"
	"fmt"
	"reflect"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func auditCases() []Case {
	return []Case{
		{Rule: "every act of an operator that changed something is kept, and no other", Run: func(r *run) {
			a := At("judged")
			r.one(Reserve(a, 1))
			r.h.Advance(Lease)
			version := r.get(a).Version
			verdict := Resolve(a, version, reservation.VerdictSucceeded, "done")
			r.refused(r.one(Resolve(a, version+1, reservation.VerdictSucceeded, "done")), reservation.VersionConflict)
			must[*reservation.Recorded](r, r.one(verdict))
			equal(r, "repeated", must[*reservation.Recorded](r, r.one(verdict)).Repeated, true)
			resolvedAt := r.h.Now()
			r.h.Advance(tick)
			r.one(Erase(a))
			r.one(Erase(a))
			r.refused(r.one(Erase(At("none"))), reservation.NotFound)
			want := []reservation.AuditEntry{{
				ID: 2, At: r.h.Now(), Actor: "olga", Act: reservation.ActErase, Address: a,
				Before: reservation.Standing{State: reservation.Succeeded, Version: version + 1},
				After:  reservation.Standing{State: reservation.Succeeded, Version: version + 2},
				Reason: Erase(a).Reason,
			}, {
				ID: 1, At: resolvedAt, Actor: "olga", Act: reservation.ActResolve, Address: a,
				Before:  reservation.Standing{State: reservation.Unknown, Version: version},
				After:   reservation.Standing{State: reservation.Succeeded, Version: version + 1},
				Verdict: reservation.VerdictSucceeded, Reason: verdict.Reason, Evidence: verdict.Evidence,
				ResultDigest: verdict.Result.Digest(),
			}}
			if got := r.acts(store.AuditQuery{Limit: 10}); !reflect.DeepEqual(got, want) {
				r.Errorf("kept are\n%+v, want\n%+v", got, want)
			}
		}},
		{Rule: "what a batch does is kept with all that it did, in its order", Run: func(r *run) {
			var commands []reservation.Command
			for i := range 7 {
				a := At(fmt.Sprint("batch-", i))
				commands = append(commands, Reserve(a, 1), Complete(a, 1, ""), Erase(a), Erase(a))
			}
			commands = append(commands, Reserve(At("plain"), 1))
			r.apply(commands...)
			acts := r.acts(store.AuditQuery{Limit: 3})
			equal(r, "acts", len(acts), 7)
			for i, act := range acts {
				equal(r, "id", act.ID, int64(7-i))
				equal(r, "version", r.get(act.Address).Version, act.After.Version)
			}
		}},
		{Rule: "the acts have pages, newest first, and stay within their tenants", Run: func(r *run) {
			begin := r.h.Now()
			for i := range 12 {
				a := reservation.Address{Tenant: []string{"acme", "other", "acm"}[i%3], Namespace: []string{"payments", "mails"}[i%2], Key: fmt.Sprint("k", i)}
				r.apply(Reserve(a, 1), Complete(a, 1, ""))
				r.one(&reservation.Erase{Address: a, Actor: fmt.Sprint("actor-", i/6), Reason: "r"})
				r.h.Advance(tick)
			}
			for name, c := range map[string]struct {
				query store.AuditQuery
				want  []int
			}{
				"all":         {store.AuditQuery{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
				"a tenant":    {store.AuditQuery{Tenants: []string{"acme"}}, []int{9, 6, 3, 0}},
				"two tenants": {store.AuditQuery{Tenants: []string{"acme", "acm"}}, []int{11, 9, 8, 6, 5, 3, 2, 0}},
				"no tenant":   {store.AuditQuery{Tenants: []string{}}, nil},
				"a namespace": {store.AuditQuery{Tenants: []string{"acme"}, Namespace: "payments"}, []int{6, 0}},
				"a key":       {store.AuditQuery{Key: "k7"}, []int{7}},
				"an actor":    {store.AuditQuery{Actor: "actor-0"}, []int{5, 4, 3, 2, 1, 0}},
				"a time":      {store.AuditQuery{After: begin + 3, Before: begin + 5}, []int{4, 3}},
			} {
				for _, limit := range []int{1, 3, 100} {
					c.query.Limit = limit
					var got []int
					for _, act := range r.acts(c.query) {
						got = append(got, int(act.ID)-1)
					}
					equal(r, fmt.Sprintf("%s by %d", name, limit), fmt.Sprint(got), fmt.Sprint(c.want))
				}
			}
		}},
		{Rule: "acts outlive the process, and their ids go on", Needs: NeedReopen, Run: func(r *run) {
			for i := range 3 {
				a := At(fmt.Sprint("k", i))
				r.apply(Reserve(a, 1), Complete(a, 1, ""))
				r.one(Erase(a))
				r.h.Reopen()
			}
			acts := r.acts(store.AuditQuery{Limit: 10})
			equal(r, "acts", len(acts), 3)
			for i, act := range acts {
				equal(r, "id", act.ID, int64(3-i))
			}
		}},
	}
}

// acts reads all pages of a query.
func (r *run) acts(query store.AuditQuery) (all []reservation.AuditEntry) {
	r.Helper()
	for range 1000 {
		page, err := r.h.Store.Audit(context.Background(), query)
		if err != nil {
			r.Fatalf("Audit: %v", err)
		}
		if len(page.Entries) > query.Limit {
			r.Fatalf("a page of %d has %d entries", query.Limit, len(page.Entries))
		}
		all = append(all, page.Entries...)
		if page.Next == 0 {
			return all
		}
		if query.Below != 0 && page.Next >= query.Below {
			r.Fatalf("the page below %d goes on below %d", query.Below, page.Next)
		}
		query.Below = page.Next
	}
	r.Fatalf("the acts do not end")
	return nil
}

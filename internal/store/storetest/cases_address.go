package storetest

import (
	"strings"

	"github.com/idemd/idemd/internal/reservation"
)

func addressCases() []Case {
	return []Case{
		{Rule: "addresses that differ in anything are different reservations", Run: func(r *run) {
			addresses := []reservation.Address{
				{Tenant: "a", Namespace: "n", Key: "k"},
				{Tenant: "b", Namespace: "n", Key: "k"},
				{Tenant: "a", Namespace: "m", Key: "k"},
				{Tenant: "a", Namespace: "n", Key: "K"},
				{Tenant: "a", Namespace: "n", Key: "k."},
				{Tenant: "a.b", Namespace: "c", Key: "d"},
				{Tenant: "a", Namespace: "b.c", Key: "d"},
				{Tenant: "a", Namespace: "b", Key: "c.d"},
				{Tenant: "a-", Namespace: "n", Key: "k"},
				{Tenant: "a", Namespace: "n", Key: "!~\"'\\%_*?"},
				{Tenant: "a", Namespace: "n", Key: strings.Repeat("x", 255)},
				{Tenant: "a", Namespace: "n", Key: strings.Repeat("x", 254)},
				{Tenant: strings.Repeat("t", 64), Namespace: strings.Repeat("n", 64), Key: strings.Repeat("k", 255)},
			}
			for i, a := range addresses {
				equal(r, "attempt", must[*reservation.Owned](r, r.one(Reserve(a, i))).Attempt, 1)
			}
			for i, a := range addresses {
				equal(r, "repeated", must[*reservation.Owned](r, r.one(Reserve(a, i))).Repeated, true)
				must[*reservation.InProgress](r, r.one(Reserve(a, i+100)))
			}
		}},
		{Rule: "nothing crosses tenants", Run: func(r *run) {
			mine := reservation.Address{Tenant: "mine", Namespace: "n", Key: "k"}
			theirs := reservation.Address{Tenant: "theirs", Namespace: "n", Key: "k"}
			r.one(Reserve(mine, 1))
			r.refused(r.one(Lookup(theirs)), reservation.NotFound)
			r.refused(r.one(Complete(theirs, 1, "x")), reservation.NotFound)
			r.refused(r.one(Resolve(theirs, r.get(mine).Version, reservation.VerdictSucceeded, "")), reservation.NotFound)
			must[*reservation.Owned](r, r.one(Reserve(theirs, 2)))
			r.one(Complete(theirs, 2, "theirs"))
			must[*reservation.InProgress](r, r.one(Reserve(mine, 3)))
		}},
	}
}

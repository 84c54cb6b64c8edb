package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

func listCases() []Case {
	return []Case{
		{Rule: "a list selects by what Lookup would show, by key, owner and time", Run: func(r *run) {
			began := r.listed()
			for name, c := range map[string]struct {
				query store.Query
				want  string
			}{
				"all":                 {store.Query{}, "[done failed final lapsed later live rerun unknown]"},
				"in progress":         {store.Query{State: reservation.Processing}, "[later live rerun]"},
				"unresolved":          {store.Query{State: reservation.Unknown}, "[lapsed unknown]"},
				"succeeded":           {store.Query{State: reservation.Succeeded}, "[done]"},
				"refused for good":    {store.Query{State: reservation.FailedFinal}, "[final]"},
				"to be tried again":   {store.Query{State: reservation.FailedRetryable}, "[failed]"},
				"a prefix":            {store.Query{KeyPrefix: "la"}, "[lapsed later]"},
				"a whole key":         {store.Query{KeyPrefix: "live"}, "[live]"},
				"a prefix of nothing": {store.Query{KeyPrefix: "lz"}, "[]"},
				"an owner":            {store.Query{Owner: "caller-2"}, "[later live]"},
				"an open one's owner": {store.Query{Owner: "caller-1", State: reservation.Unknown}, "[lapsed unknown]"},
				"from a time on":      {store.Query{ReservedAfter: began.Add(Lease)}, "[later live]"},
				"up to a time":        {store.Query{ReservedBefore: began.Add(Lease)}, "[done failed final lapsed rerun unknown]"},
				"between times":       {store.Query{ReservedAfter: began + 1, ReservedBefore: began.Add(Lease) + 1}, "[live]"},
			} {
				c.query.Tenant, c.query.Namespace = "acme", "payments"
				for _, limit := range []int{1, 3, 100} {
					c.query.Limit = limit
					equal(r, fmt.Sprintf("%s by %d", name, limit), fmt.Sprint(r.keys(c.query)), c.want)
				}
			}
			everywhere := store.Query{KeyPrefix: "li", Limit: 2}
			equal(r, "a prefix in all namespaces", fmt.Sprint(r.keys(everywhere)), "[live live live]")
			everywhere = store.Query{Namespace: "mails", Limit: 2}
			equal(r, "a namespace of all tenants", fmt.Sprint(r.keys(everywhere)), "[live]")
			everywhere = store.Query{Namespace: "payments", State: reservation.Unknown, Limit: 2}
			equal(r, "what is unresolved in a namespace of all tenants", fmt.Sprint(r.keys(everywhere)), "[lapsed unknown live]")
		}},
		{Rule: "a list leaves out what can be large", Run: func(r *run) {
			a := At("large")
			fillRecord(r, a)
			entries := r.pages(store.Query{Tenant: "acme", Limit: 10})
			equal(r, "entries", len(entries), 1)
			rec, stored := entries[0].Record, r.get(a)
			equal(r, "result, checkpoint, history, evidence",
				rec.Result == nil && rec.Checkpoint == nil && rec.History == nil && rec.Evidence == nil, true)
			equal(r, "owner", rec.Owner, stored.Owner)
			equal(r, "version", rec.Version, stored.Version)
			equal(r, "reserved at", rec.ReservedAt, stored.ReservedAt)
		}},
		{Rule: "a page has a bound on what it looks at, and the next goes on from there", Run: func(r *run) {
			for i := range 20 {
				r.one(Reserve(At(fmt.Sprintf("k%02d", i)), i))
			}
			query := store.Query{Tenant: "acme", Owner: "caller-19", Limit: 10, Examine: 6}
			pages := 0
			for more := true; more; pages++ {
				page, err := r.h.Store.List(context.Background(), query)
				if err != nil || page.Examined > 6 || len(page.Entries) > 0 && pages < 3 || pages > 4 {
					r.Fatalf("page %d: %d entries, %d looked at, %v", pages, len(page.Entries), page.Examined, err)
				}
				if len(page.Entries) > 0 {
					equal(r, "found", page.Entries[0].Address.Key, "k19")
				}
				more, query.After = page.More, page.End
			}
			equal(r, "pages", pages, 4)
		}},
		{Rule: "the statistics tell namespaces apart, and which is the oldest unresolved", Run: func(r *run) {
			began := r.listed()
			stats, err := r.h.Store.Stats(context.Background())
			if err != nil {
				r.Fatalf("Stats: %v", err)
			}
			lapsedAt := began.Add(Lease)
			equal(r, "cut", stats.Cut, false)
			equal(r, "scopes", len(stats.Scopes), 3)
			equal(r, "payments", stats.Scopes[store.Scope{Tenant: "acme", Namespace: "payments"}],
				store.Counts{Live: 2, Lapsed: 1, Unknown: 2, OldestUnresolved: began, OldestKey: "unknown"})
			equal(r, "mails", stats.Scopes[store.Scope{Tenant: "acme", Namespace: "mails"}],
				store.Counts{Unknown: 1, OldestUnresolved: lapsedAt, OldestKey: "live"})
			equal(r, "another tenant's", stats.Scopes[store.Scope{Tenant: "other", Namespace: "payments"}],
				store.Counts{Unknown: 1, OldestUnresolved: lapsedAt, OldestKey: "live"})
			equal(r, "all together", stats.Counts,
				store.Counts{Live: 2, Lapsed: 1, Unknown: 4, OldestUnresolved: began, OldestKey: "unknown"})
			equal(r, "where the oldest lies", stats.OldestScope, store.Scope{Tenant: "acme", Namespace: "payments"})
		}},
	}
}

// listed makes records of every kind, of caller 1 at first, and tells when it began.
func (r *run) listed() (began reservation.Time) {
	r.Helper()
	for _, other := range []reservation.Address{
		{Tenant: "acme", Namespace: "mails", Key: "live"}, {Tenant: "other", Namespace: "payments", Key: "live"},
	} {
		r.one(Reserve(other, 2))
	}
	for key, end := range map[string]func(reservation.Address) reservation.Command{
		"done":    func(a reservation.Address) reservation.Command { return Complete(a, 1, "") },
		"final":   func(a reservation.Address) reservation.Command { return Fail(a, 1, reservation.ToldFinal, "") },
		"failed":  func(a reservation.Address) reservation.Command { return Fail(a, 1, reservation.ToldRetryable, "") },
		"unknown": func(a reservation.Address) reservation.Command { return Fail(a, 1, reservation.ToldUnknown, "") },
		"expired": func(a reservation.Address) reservation.Command { return Complete(a, 1, "") },
		"lapsed":  nil, "rerun": nil,
	} {
		var edits []func(*reservation.Reserve)
		switch key {
		case "expired":
			edits = append(edits, RetentionOf(time.Second))
		case "rerun":
			edits = append(edits, Rerunnable)
		}
		r.one(Reserve(At(key), 1, edits...))
		if end != nil {
			r.one(end(At(key)))
		}
	}
	began = r.h.Now()
	r.h.Advance(Lease)
	r.one(Reserve(At("live"), 2))
	r.h.Advance(tick)
	r.one(Reserve(At("later"), 2))
	return began
}

func (r *run) keys(query store.Query) (keys []string) {
	r.Helper()
	for _, entry := range r.pages(query) {
		keys = append(keys, entry.Address.Key)
	}
	return keys
}

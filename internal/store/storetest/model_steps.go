package storetest

import (
	"context"
	"fmt"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// do runs one step.
func (g *group) do(s step) {
	g.t.Helper()
	switch s.what {
	case actApply:
		g.apply(s)
	case actAdvance:
		g.each(func(h *Harness) { h.Advance(s.by) })
	case actAdvanceTo:
		g.advanceTo(s)
	case actSweep:
		same(g, "sweep", func(r *run) int { return r.sweepBy(s.limit) })
	case actRead:
		g.read()
		g.reread()
	case actList:
		g.list(s)
	case actReopen:
		g.each(func(h *Harness) {
			if h.Reopen != nil {
				h.Reopen()
			}
		})
	}
}

func (g *group) apply(s step) {
	g.t.Helper()
	commands := g.commands(s)
	same(g, s.GoString(), func(r *run) []reservation.Outcome { return r.apply(commands...) })
	g.read()
}

// commands makes the commands of a step, for the records that the reference holds.
func (g *group) commands(s step) []reservation.Command {
	commands := make([]reservation.Command, len(s.commands))
	for i, o := range s.commands {
		commands[i] = o.command(placeOf(g.tenant, o.place), g.reference.Now(), g.record(o.place))
		if err := commands[i].Validate(); err != nil {
			panic(fmt.Sprintf("a script has an invalid command: %v: %v", o, err))
		}
	}
	return commands
}

// advanceTo moves the clocks to a boundary of a record, or beside it. Clocks don't step
// back: what lies behind is passed over.
func (g *group) advanceTo(s step) {
	rec := g.record(s.place)
	if rec == nil {
		return
	}
	at := map[boundary]reservation.Time{
		leaseEnd: rec.LeaseExpiresAt, leaseCap: rec.LeaseCapAt, expiry: rec.ExpiresAt, bodyEnd: rec.BodyExpiresAt(), retryTime: rec.RetryAt,
	}[s.boundary]
	if d := at.Add(s.by).Sub(g.reference.Now()); d > 0 {
		g.each(func(h *Harness) { h.Advance(d) })
	}
}

// read compares the records at all places.
func (g *group) read() {
	g.t.Helper()
	addresses := make([]reservation.Address, places)
	for i := range addresses {
		addresses[i] = placeOf(g.tenant, i)
	}
	same(g, "get", func(r *run) store.Snapshot {
		snapshot := r.read(store.Want(addresses...)...)
		for i := range snapshot.Found {
			snapshot.Found[i].Seen.Place = 0 // a store's own business
		}
		return snapshot
	})
}

// reread checks that what a store leaves out, because it is as it was last seen, is
// so; and that it leaves it out. What the marks are is the store's own business.
func (g *group) reread() {
	g.t.Helper()
	g.each(func(h *Harness) {
		r := &run{T: g.t, h: h}
		wanted := make([]store.Wanted, places)
		for i := range wanted {
			wanted[i].Address = placeOf(g.tenant, i)
			wanted[i].Seen = h.seen[wanted[i].Address]
		}
		changed := make(map[int]bool)
		for _, found := range r.read(wanted...).Found {
			changed[found.Index] = true
		}
		h.seen = make(map[reservation.Address]store.Seen)
		for i, found := range r.read(store.Want(addressesOf(wanted)...)...).Found {
			address := wanted[i].Address
			if h.seen[address] = found.Seen; found.Seen.Version != wanted[i].Seen.Version && !changed[i] {
				r.Fatalf("reread: %v has changed from %+v to %+v and was left out", address, wanted[i].Seen, found.Seen)
			}
			wanted[i].Seen = found.Seen
		}
		for _, found := range r.read(wanted...).Found {
			if found.Record != nil {
				r.Fatalf("reread: %v has not changed and was read again", wanted[found.Index].Address)
			}
		}
	})
}

func addressesOf(wanted []store.Wanted) (addresses []reservation.Address) {
	for _, w := range wanted {
		addresses = append(addresses, w.Address)
	}
	return addresses
}

// list compares the pages of each tenant's records, and what is counted.
func (g *group) list(s step) {
	g.t.Helper()
	for _, query := range []store.Query{
		{Tenant: g.tenant}, {Tenant: g.tenant, Namespace: "n"}, {Tenant: g.tenant + ".n"},
		{Tenant: g.tenant, Namespace: "n", KeyPrefix: "k"}, {Tenant: g.tenant, Owner: "caller-1"},
		{Tenant: g.tenant, ReservedAfter: g.reference.Now() - 1, ReservedBefore: g.reference.Now()},
	} {
		query.State, query.Limit = s.state, s.limit
		same(g, fmt.Sprintf("list %+v", query), func(r *run) []store.Entry { return r.pages(query) })
	}
	same(g, "audit", func(r *run) []reservation.AuditEntry {
		return r.acts(store.AuditQuery{Tenants: []string{g.tenant, g.tenant + ".n"}, Limit: s.limit})
	})
	same(g, "stats", func(r *run) store.Stats {
		stats, err := r.h.Store.Stats(context.Background())
		if err != nil {
			r.Fatalf("Stats: %v", err)
		}
		stats.Finished = 0 // an estimate
		return stats
	})
}

// check has every store look for what is damaged.
func (g *group) check() {
	g.t.Helper()
	same(g, "check", func(r *run) store.Report {
		r.checkClean()
		return r.check()
	})
}

// sweepBy sweeps in steps of a limit until nothing is left, and counts. Which of equally
// old records goes first is every store's own affair.
func (r *run) sweepBy(limit int) (deleted int) {
	r.Helper()
	for range 10_000 {
		swept := r.sweep(limit)
		deleted += swept.Deleted
		if !swept.More {
			equal(r, "lag after a sweep that left nothing", swept.Lag, 0)
			return deleted
		}
	}
	r.Fatalf("the sweep does not end")
	return deleted
}

package engine

import (
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// desk is where operators read. What they ask for is bounded, and so is how much of it is
// under way: callers come first.
type desk struct {
	store store.Store
	seats chan struct{}

	// counting is held by who reads or refreshes the counts.
	counting chan struct{}
	counts   store.Stats
	countErr error
	counted  time.Time
}

const (
	// seats is how many lists are read at once.
	seats = 4
	// countsMaxAge is how old the counts shown may be.
	countsMaxAge = 5 * time.Second
	// countTimeout bounds a count; countsMaxAge later it is tried again.
	countTimeout = 2 * time.Second
)

func newDesk(s store.Store) *desk {
	return &desk{store: s, seats: make(chan struct{}, seats), counting: make(chan struct{}, 1)}
}

// sit waits for a seat; whoever has one calls rise.
func (d *desk) sit(ctx context.Context) error {
	select {
	case d.seats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *desk) rise() { <-d.seats }

// Stats are the store's counts, at most a few seconds old. Error: STORE_UNAVAILABLE, with
// the last counts there were.
func (e *Engine) Stats(ctx context.Context) (store.Stats, error) {
	d := e.desk
	select {
	case d.counting <- struct{}{}:
	case <-ctx.Done():
		return store.Stats{}, ctx.Err()
	}
	defer func() { <-d.counting }()
	if !d.counted.IsZero() && time.Since(d.counted) < countsMaxAge {
		return d.counts, d.countErr
	}
	// Not the caller's context: the counts are everybody's.
	counting, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTimeout)
	defer cancel()
	counts, err := d.store.Stats(counting)
	if err == nil {
		d.counts = counts
	}
	d.countErr, d.counted = err, time.Now()
	return d.counts, err
}

// ScopeStats are the counts of one namespace.
type ScopeStats struct {
	Scope store.Scope
	store.Counts
}

// StatsOf picks the counts of the namespaces that a filter names, in the order of their
// names. Its Tenant and Namespace are looked at; tenants are those that may be seen, nil =
// all.
func StatsOf(stats store.Stats, tenants []string, filter reservation.Filter) []ScopeStats {
	var all []ScopeStats
	for scope, counts := range stats.Scopes {
		if sees(tenants, scope.Tenant) && (filter.Tenant == "" || filter.Tenant == scope.Tenant) &&
			(filter.Namespace == "" || filter.Namespace == scope.Namespace) {
			all = append(all, ScopeStats{scope, counts})
		}
	}
	sortScopes(all)
	return all
}

package daemon

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// registerStats shows the store's own counts, or the last there were.
func (m *metrics) registerStats(count func(context.Context) (store.Stats, error)) {
	gauge := func(name, help string, value func(store.Stats) float64) {
		m.gauge(name, help, func() float64 {
			stats, _ := count(context.Background())
			return value(stats)
		})
	}
	m.registry.MustRegister(newScopeCounts(m.scopes, count))
	gauge("idemd_reservations_live", "Reservations whose owner is within its lease.",
		func(s store.Stats) float64 { return float64(s.Live) })
	gauge("idemd_reservations_lapsed", "Reservations whose lease is over and that the next caller takes over.",
		func(s store.Stats) float64 { return float64(s.Lapsed) })
	gauge("idemd_reservations_unresolved", "Reservations of which nobody knows how they ended.",
		func(s store.Stats) float64 { return float64(s.Unknown) })
	gauge("idemd_oldest_unresolved_seconds", "Age of the oldest unresolved reservation, in seconds.",
		func(s store.Stats) float64 {
			return unresolvedFor(s.Now, s.Counts)
		})
}

func unresolvedFor(now reservation.Time, c store.Counts) float64 {
	if c.OldestUnresolved == 0 {
		return 0
	}
	return now.Sub(c.OldestUnresolved).Seconds()
}

// scopeCounts shows the store's counts of each namespace that has a label, and those of
// the others together.
type scopeCounts struct {
	scopes *scopes
	count  func(context.Context) (store.Stats, error)
	open   *prometheus.Desc
	oldest *prometheus.Desc
}

func newScopeCounts(s *scopes, count func(context.Context) (store.Stats, error)) *scopeCounts {
	return &scopeCounts{
		scopes: s, count: count,
		open: prometheus.NewDesc("idemd_scope_reservations",
			"Reservations that have not finished, by tenant, namespace and state: live, lapsed, unresolved.", []string{"tenant", "namespace", "state"}, nil),
		oldest: prometheus.NewDesc("idemd_scope_oldest_unresolved_seconds",
			"Age of the oldest unresolved reservation of a namespace, in seconds.", []string{"tenant", "namespace"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *scopeCounts) Describe(to chan<- *prometheus.Desc) {
	to <- c.open
	to <- c.oldest
}

// Collect implements prometheus.Collector.
func (c *scopeCounts) Collect(to chan<- prometheus.Metric) {
	stats, _ := c.count(context.Background())
	send := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for scope, counts := range c.labelled(stats) {
		for state, n := range map[string]int64{"live": counts.Live, "lapsed": counts.Lapsed, "unresolved": counts.Unknown} {
			send(c.open, float64(n), scope.Tenant, scope.Namespace, state)
		}
		send(c.oldest, unresolvedFor(stats.Now, counts), scope.Tenant, scope.Namespace)
	}
}

// labelled are the counts by label. What has no label of its own is the rest, of which
// the store may have counted some only in its totals.
func (c *scopeCounts) labelled(stats store.Stats) map[store.Scope]store.Counts {
	by := make(map[store.Scope]store.Counts)
	rest := stats.Counts
	for scope, counts := range stats.Scopes {
		if c.scopes.label(scope, true) == otherScope() {
			continue
		}
		by[scope] = counts
		rest.Live -= counts.Live
		rest.Lapsed -= counts.Lapsed
		rest.Unknown -= counts.Unknown
	}
	if rest.Live+rest.Lapsed+rest.Unknown == 0 {
		return by
	}
	rest.OldestUnresolved = 0
	if rest.Unknown > 0 {
		rest.OldestUnresolved = oldestOfRest(stats, by)
	}
	by[otherScope()] = rest
	return by
}

// oldestOfRest is since when the oldest of what has no label is unresolved. Of a store with
// more namespaces than it tells apart it may be the oldest of all, which is no later.
func oldestOfRest(stats store.Stats, labelled map[store.Scope]store.Counts) reservation.Time {
	if _, has := labelled[stats.OldestScope]; stats.Cut && !has {
		return stats.OldestUnresolved
	}
	var oldest reservation.Time
	for scope, counts := range stats.Scopes {
		if _, has := labelled[scope]; has || counts.OldestUnresolved == 0 {
			continue
		}
		if oldest == 0 || counts.OldestUnresolved < oldest {
			oldest = counts.OldestUnresolved
		}
	}
	return oldest
}

package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/pebblestore"
)

// registerStore shows whether the store answers, and of an embedded one how it is.
func (m *metrics) registerStore(s store.Store, answers func() bool) {
	m.gauge("idemd_store_up", "1 while the store answers.", func() float64 {
		if answers() {
			return 1
		}
		return 0
	})
	if embedded, is := s.(*pebblestore.Store); is {
		m.registry.MustRegister(newEmbeddedMetrics(embedded.Metrics))
	}
}

// embeddedMetrics shows what an embedded store tells of itself.
type embeddedMetrics struct {
	read                            func() pebblestore.Metrics
	disk, free, debt, syncs, clocks *prometheus.Desc
}

func newEmbeddedMetrics(read func() pebblestore.Metrics) *embeddedMetrics {
	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, nil, nil) }
	return &embeddedMetrics{
		read:   read,
		disk:   desc("idemd_embedded_disk_bytes", "What the embedded store's directory takes up."),
		free:   desc("idemd_embedded_disk_free_bytes", "What is free on the disk of the embedded store's directory."),
		debt:   desc("idemd_embedded_compaction_debt_bytes", "What the embedded store still has to compact, estimated."),
		syncs:  desc("idemd_embedded_sync_waiting", "Calls that wait for an fsync."),
		clocks: desc("idemd_embedded_clock_ahead_seconds", "By how much the embedded store's clock is ahead of the machine's, in seconds."),
	}
}

// Describe implements prometheus.Collector.
func (c *embeddedMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect implements prometheus.Collector.
func (c *embeddedMetrics) Collect(to chan<- prometheus.Metric) {
	now := c.read()
	for desc, value := range map[*prometheus.Desc]float64{
		c.disk: float64(now.DiskBytes), c.free: float64(now.DiskFree), c.debt: float64(now.CompactionDebt),
		c.syncs: float64(now.Waiting), c.clocks: now.ClockAhead.Seconds(),
	} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
}

package daemon

import (
	"context"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// metrics are what the daemon counts. No label holds what callers choose freely.
type metrics struct {
	registry *prometheus.Registry
	grpc     *grpcprom.ServerMetrics

	decisions    *prometheus.CounterVec
	batchSize    prometheus.Histogram
	applySeconds prometheus.Histogram
	pollSeconds  prometheus.Histogram
	polled       prometheus.Counter
	swept        prometheus.Counter
	stripped     prometheus.Counter
	sweepErrors  prometheus.Counter
	sweepLag     prometheus.Gauge
	sweepSeconds prometheus.Histogram
	sweptAt      prometheus.Gauge
	reloads      reloadMetrics
}

func newMetrics(insecure bool) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		grpc:     grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram()),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idemd_decisions_total", Help: "Commands answered, by what they were answered.",
		}, []string{"decision"}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idemd_store_batch_commands", Help: "Commands in one batch to the store.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		applySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idemd_store_apply_seconds", Help: "Time to apply one batch, in seconds, its sync or commit included.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		pollSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idemd_wait_poll_seconds", Help: "Time of one read of the store for calls that wait, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		polled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idemd_wait_polled_total", Help: "Reservations looked at for calls that wait.",
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idemd_swept_total", Help: "Expired records deleted.",
		}),
		stripped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idemd_swept_bodies_total", Help: "Bodies of results taken out before their records expired.",
		}),
		sweepErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "idemd_sweep_errors_total", Help: "Sweeps that failed.",
		}),
		sweepLag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "idemd_sweep_lag_seconds", Help: "How long the oldest expired record had been waiting for the sweeper when it last came, in seconds.",
		}),
		sweepSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "idemd_sweep_seconds", Help: "Time of one batch of the sweeper, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}),
		sweptAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "idemd_sweep_last_success_timestamp_seconds", Help: "When the sweeper last succeeded, in seconds since 1970; it tries at least every 30 s.",
		}),
	}
	unauthenticated := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idemd_insecure", Help: "1 where the daemon listens beyond loopback without authentication.",
	}, func() float64 {
		if insecure {
			return 1
		}
		return 0
	})
	m.reloads = newReloadMetrics(m.registry)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.grpc, m.decisions, m.batchSize, m.applySeconds, m.pollSeconds, m.polled, m.swept, m.stripped, m.sweepErrors, m.sweepLag, m.sweepSeconds, m.sweptAt, unauthenticated,
	)
	return m
}

func (m *metrics) hooks() engine.Hooks {
	return engine.Hooks{
		Applied: func(commands int, took time.Duration) {
			m.batchSize.Observe(float64(commands))
			m.applySeconds.Observe(took.Seconds())
		},
		Decided: func(_ reservation.Address, outcome reservation.Outcome) {
			m.decisions.WithLabelValues(decisionName(outcome)).Inc()
		},
		Polled: func(addresses int, took time.Duration) {
			m.polled.Add(float64(addresses))
			m.pollSeconds.Observe(took.Seconds())
		},
	}
}

// registerWaiting shows how many calls wait.
func (m *metrics) registerWaiting(waiting func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "idemd_waiters", Help: "Calls that wait for others to finish.",
	}, func() float64 { return float64(waiting()) }))
}

// decisionName is bounded: kinds of outcomes, and reasons.
func decisionName(outcome reservation.Outcome) string {
	switch o := outcome.(type) {
	case *reservation.Owned:
		if o.Repeated {
			return "OWNED_AGAIN"
		}
		return "OWNED"
	case *reservation.InProgress:
		return "IN_PROGRESS"
	case *reservation.Replay:
		return "REPLAY"
	case *reservation.Unresolved:
		return "UNRESOLVED"
	case *reservation.Extended:
		return "EXTENDED"
	case *reservation.Recorded:
		return "RECORDED"
	case *reservation.Found:
		return "FOUND"
	case *reservation.Error:
		return string(o.Reason)
	}
	return "OTHER"
}

func (m *metrics) sweepHook(swept store.Swept, took time.Duration) {
	m.swept.Add(float64(swept.Deleted))
	m.stripped.Add(float64(swept.Stripped))
	m.sweepSeconds.Observe(took.Seconds())
	m.sweptAt.SetToCurrentTime()
	m.sweepLag.Set(swept.Lag.Seconds())
}

// registerStats shows the store's own counts, or the last there were.
func (m *metrics) registerStats(count func(context.Context) (store.Stats, error)) {
	gauge := func(name, help string, value func(store.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			stats, _ := count(context.Background())
			return value(stats)
		}))
	}
	gauge("idemd_reservations_live", "Reservations whose owner is within its lease.",
		func(s store.Stats) float64 { return float64(s.Live) })
	gauge("idemd_reservations_lapsed", "Reservations whose lease is over and that the next caller takes over.",
		func(s store.Stats) float64 { return float64(s.Lapsed) })
	gauge("idemd_reservations_unresolved", "Reservations of which nobody knows how they ended.",
		func(s store.Stats) float64 { return float64(s.Unknown) })
	gauge("idemd_oldest_unresolved_seconds", "Age of the oldest unresolved reservation, in seconds.",
		func(s store.Stats) float64 {
			if s.OldestUnresolved == 0 {
				return 0
			}
			return s.Now.Sub(s.OldestUnresolved).Seconds()
		})
}

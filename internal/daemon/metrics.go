package daemon

import (
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// metrics are what the daemon counts. What callers choose is a label only where it names a
// tenant or a namespace, and of those there is a bounded number.
type metrics struct {
	registry *prometheus.Registry
	grpc     *grpcprom.ServerMetrics

	scopes       *scopes
	decisions    *prometheus.CounterVec
	refusals     *prometheus.CounterVec
	stale        *prometheus.CounterVec
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
		}, []string{"tenant", "namespace", "decision"}),
		scopes: newScopes(),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idemd_refusals_total", Help: "Commands and calls refused, by reason.",
		}, []string{"reason"}),
		stale: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "idemd_stale_outcomes_total", Help: "Outcomes (Complete, Fail) refused because they contradict the record: their owner came too late.",
		}, []string{"reason"}),
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
	// What alerts are about is there from the start: of a series that begins with its first
	// event nobody sees that event as an increase.
	for _, reason := range []reservation.Reason{reservation.StaleToken, reservation.AlreadyFinished} {
		m.stale.WithLabelValues(string(reason))
	}
	for _, reason := range []reservation.Reason{reservation.RateLimited, reservation.QuotaExceeded, reservation.Overloaded} {
		m.refusals.WithLabelValues(string(reason))
	}
	m.reloads = newReloadMetrics(m.registry)
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.grpc, m.decisions, m.refusals, m.stale, m.batchSize, m.applySeconds, m.pollSeconds, m.polled, m.swept, m.stripped, m.sweepErrors, m.sweepLag, m.sweepSeconds, m.sweptAt, unauthenticated,
	)
	return m
}

func (m *metrics) hooks() engine.Hooks {
	return engine.Hooks{
		Applied: func(commands int, took time.Duration) {
			m.batchSize.Observe(float64(commands))
			m.applySeconds.Observe(took.Seconds())
		},
		Decided: m.decided,
		Polled: func(addresses int, took time.Duration) {
			m.polled.Add(float64(addresses))
			m.pollSeconds.Observe(took.Seconds())
		},
	}
}

// gauge shows a number that is read when it is asked for.
func (m *metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// registerLoad shows how many calls wait, and for what.
func (m *metrics) registerLoad(waiting, queued func() int) {
	m.gauge("idemd_waiters", "Calls that wait for others to finish.", func() float64 { return float64(waiting()) })
	m.gauge("idemd_queue_commands", "Commands that the store has not answered yet.", func() float64 { return float64(queued()) })
}

func (m *metrics) sweepHook(swept store.Swept, took time.Duration) {
	m.swept.Add(float64(swept.Deleted))
	m.stripped.Add(float64(swept.Stripped))
	m.sweepSeconds.Observe(took.Seconds())
	m.sweptAt.SetToCurrentTime()
	m.sweepLag.Set(swept.Lag.Seconds())
}

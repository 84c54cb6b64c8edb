package relay

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are one Run's. docs/messaging.md says what each means.
type metrics struct {
	sent, failed, parked metric.Int64Counter
	lag                  metric.Float64Histogram
	attributes           metric.MeasurementOption
	counted, uncounted   metric.MeasurementOption
	stop                 func()
}

func newMetrics(r *Relay, w *work, pool *pgxpool.Pool) (*metrics, error) {
	table := attribute.String("outbox.table", r.table.Schema+"."+r.table.Table)
	m := &metrics{
		attributes: metric.WithAttributeSet(attribute.NewSet(table)),
		counted:    metric.WithAttributeSet(attribute.NewSet(table, attribute.Bool("counted", true))),
		uncounted:  metric.WithAttributeSet(attribute.NewSet(table, attribute.Bool("counted", false))),
	}
	meter := r.config.MeterProvider.Meter("github.com/idemd/idemd/clients/go/messaging/relay")
	var failures [8]error
	m.sent, failures[0] = meter.Int64Counter("outbox.relay.sent", metric.WithUnit("{event}"), metric.WithDescription("Events that the broker has acknowledged."))
	m.failed, failures[1] = meter.Int64Counter("outbox.relay.failed", metric.WithUnit("{attempt}"), metric.WithDescription("Attempts to send that failed."))
	m.parked, failures[2] = meter.Int64Counter("outbox.relay.parked", metric.WithUnit("{event}"), metric.WithDescription("Events that were given up."))
	m.lag, failures[3] = meter.Float64Histogram("outbox.relay.lag", metric.WithUnit("s"), metric.WithDescription("From an event's adding to its acknowledgement."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600))
	away, err := meter.Int64ObservableGauge("outbox.relay.away", metric.WithDescription("1 while the broker gives no sign."))
	failures[4] = err
	pending, err := meter.Int64ObservableGauge("outbox.pending", metric.WithUnit("{event}"), metric.WithDescription("Events that are pending."))
	failures[5] = err
	oldest, err := meter.Float64ObservableGauge("outbox.oldest_pending", metric.WithUnit("s"), metric.WithDescription("The age of the first pending event."))
	failures[6] = err
	parked, err := meter.Int64ObservableGauge("outbox.parked", metric.WithUnit("{event}"), metric.WithDescription("Events that are parked."))
	failures[7] = err
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	registration, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		isAway := int64(0)
		if w.isAway.Load() {
			isAway = 1
		}
		o.ObserveInt64(away, isAway, m.attributes)
		ctx, cancel := context.WithTimeout(ctx, statsTimeout)
		defer cancel()
		s, err := r.outbox.Stats(ctx, pool)
		if err != nil {
			return err
		}
		o.ObserveInt64(pending, s.Pending, m.attributes)
		o.ObserveInt64(parked, s.Parked, m.attributes)
		o.ObserveFloat64(oldest, s.OldestPending.Seconds(), m.attributes)
		return nil
	}, away, pending, oldest, parked)
	if err != nil {
		return nil, err
	}
	m.stop = func() { _ = registration.Unregister() }
	return m, nil
}

// statsTimeout bounds what an export of metrics waits for the database.
const statsTimeout = 5 * time.Second

func (m *metrics) failure(ctx context.Context, f failed) {
	if f.counted {
		m.failed.Add(ctx, 1, m.counted)
	} else {
		m.failed.Add(ctx, 1, m.uncounted)
	}
	if f.parked {
		m.parked.Add(ctx, 1, m.attributes)
	}
}

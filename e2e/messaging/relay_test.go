package messaging

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/e2e/harness"
)

func TestAnEventGoesFromItsTransactionThroughEachBrokerToAConsumerWithItsTrace(t *testing.T) {
	eachBroker(t, func(t *testing.T, b broker, pool *pgxpool.Pool) {
		s := &shop{T: t, ctx: harness.Bounded(t), dsn: pool.Config().ConnString(), pool: pool, config: outbox.Config{Schema: "shop", Order: outbox.PerAggregate}}
		var err error
		if s.outbox, err = outbox.New(s.config); err != nil {
			t.Fatal(err)
		}
		if err := s.outbox.Migrate(s.ctx, pool); err != nil {
			t.Fatal(err)
		}
		topic := func(e outbox.Event) string { return e.AggregateType + "s" } // without dots: the stream is made from it
		got := collect(t, b.subscriber(t, "warehouse"), "orders")
		c := s.settings(b.publisher(t), "")
		c.Topic = topic
		s.relay(c)
		request := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
		e := placed("order-1", 7)
		e.ID, e.Payload = "0190a2c4-7b1e-7c3d-8a4f-0123456789ab", []byte{0, 0xff, '"'}
		s.add(trace.ContextWithSpanContext(s.ctx, request), e)
		harness.Until(t, "the message", func() bool { return len(got.all()) > 0 })
		m := got.all()[0]
		if m.UUID != e.ID || !bytes.Equal(m.Payload, e.Payload) || m.Metadata[outbox.AggregateIDHeader] != "order-1" ||
			m.Metadata[outbox.TypeHeader] != "OrderPlaced" || m.Metadata["traceparent"] != "00-01000000000000000000000000000000-0200000000000000-01" {
			t.Errorf("arrived as %s %q %v", m.UUID, m.Payload, m.Metadata)
		}
	})
}

func TestABrokerThatIsAwayForLongerThanAllAttemptsCostsNothing(t *testing.T) {
	s := newShop(t, outbox.PerAggregate)
	c := s.settings(s.publisher(false), "")
	c.Attempts = 2
	tried := make(chan struct{}, 1000)
	c.Publisher = counting{c.Publisher, tried}
	s.relay(c)
	s.add(s.ctx, placed("a", 1))
	s.drained()
	s.stopNATS()
	for n := range 20 {
		s.add(s.ctx, placed(fmt.Sprint("b", n%4), n))
	}
	// Of the four that are at the front of their aggregates one is tried more than twice.
	for range 12 {
		<-tried
	}
	s.startNATS()
	s.drained()
	if stats, err := s.outbox.Stats(s.ctx, s.pool); err != nil || stats.Parked != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	s.allArrivedInOrder(21)
}

// counting tells of each message that is tried.
type counting struct {
	message.Publisher
	tried chan struct{}
}

func (c counting) Publish(topic string, messages ...*message.Message) error {
	c.tried <- struct{}{}
	return c.Publisher.Publish(topic, messages...)
}

// allArrivedInOrder: n different events, copies under the same id only, and of each
// aggregate the first copies in the order of their numbers.
func (s *shop) allArrivedInOrder(n int) {
	s.Helper()
	seen, last := map[string]string{}, map[string]int{}
	for _, m := range s.arrived() {
		aggregate := m.Metadata[outbox.AggregateIDHeader]
		key := aggregate + ":" + string(m.Payload)
		if id := seen[key]; id != "" {
			if id != m.UUID {
				s.Errorf("%s arrived under two ids", key)
			}
			continue
		}
		seen[key] = m.UUID
		var number int
		_, _ = fmt.Sscan(string(m.Payload), &number)
		if before, has := last[aggregate]; has && s.config.Order == outbox.PerAggregate && number < before {
			s.Errorf("%s came after %d", key, before)
		}
		last[aggregate] = number
	}
	if len(seen) != n {
		s.Errorf("%d different events arrived, want %d", len(seen), n)
	}
}

func TestAPayloadThatIsTooLargeForTheBrokerIsParkedAtOnceAndTheRestGoesOut(t *testing.T) {
	s := newShop(t, outbox.PerAggregate)
	large := placed("a", 1)
	large.Payload = make([]byte, s.options.MaxPayload+1)
	s.add(s.ctx, large, placed("a", 2), placed("b", 3))
	c := s.settings(s.publisher(false), "")
	c.Classify = tooLarge
	s.relay(c)
	s.drained()
	rows, err := s.outbox.List(s.ctx, s.pool, outbox.Parked, 0, 10)
	if err != nil || len(rows) != 1 || rows[0].Attempts != 1 || len(s.arrived()) != 2 {
		t.Errorf("parked: %+v, %v; %d arrived", rows, err, len(s.arrived()))
	}
}

func TestCopiesOfAnEventAreDroppedByABrokerThatLooksAtItsId(t *testing.T) {
	s := newShop(t, outbox.None)
	s.add(s.ctx, placed("a", 1))
	stop := s.relay(s.settings(s.publisher(true), ""))
	s.drained()
	stop()
	exec(t, s.pool, "UPDATE shop.outbox SET state = 0") // as if the mark had been lost
	s.relay(s.settings(s.publisher(true), ""))
	s.drained()
	if n := len(s.arrived()); n != 1 {
		t.Errorf("%d arrived", n)
	}
}

// The answer to one of the relay's transactions gets lost on the way, with the connection:
// it can't know whether it has committed.
func TestALostAnswerOfTheDatabaseLosesNoEvent(t *testing.T) {
	for name, order := range map[string]outbox.Order{"per aggregate": outbox.PerAggregate, "none": outbox.None} {
		for _, statement := range []string{"SET claimed_by = $1", "sent_at = clock_timestamp()", "commit"} {
			t.Run(name+": "+statement, func(t *testing.T) {
				s := newShop(t, order)
				for n := range 10 {
					s.add(s.ctx, placed(fmt.Sprint("a", n%2), n))
				}
				proxy := harness.TCP(t, house.Postgres.Server(t).Address())
				if statement == "commit" {
					statement += "\x00" // a whole one, not a part of BEGIN ISOLATION LEVEL READ COMMITTED
					if order == outbox.None {
						statement = strings.ToUpper(statement)
					}
				}
				lost := proxy.LoseAnswer([]byte(statement), []byte{'Z', 0, 0, 0, 5, 'I'})
				if order == outbox.PerAggregate && statement == "SET claimed_by = $1" {
					lost = proxy.LoseAnswer([]byte(statement), []byte{'Z', 0, 0, 0, 5, 'T'}) // within its transaction
				}
				c := s.settings(s.publisher(false), proxy.Addr())
				c.Postgres.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // else the text goes when it is prepared
				s.relay(c)
				<-lost
				s.drained()
				s.allArrivedInOrder(10)
			})
		}
	}
}

func TestNothingIsLostOrOutOfOrderWhileConnectionsBreakAndTheBrokerIsRestarted(t *testing.T) {
	for name, order := range map[string]outbox.Order{"per aggregate": outbox.PerAggregate, "none": outbox.None} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			s := newShop(t, order)
			proxy := harness.TCP(t, house.Postgres.Server(t).Address())
			for _, address := range []string{proxy.Addr(), ""} {
				c := s.settings(s.publisher(false), address)
				c.Batch = 20
				s.relay(c)
			}
			const n = 400
			for i := range n {
				s.add(s.ctx, placed(fmt.Sprint("a", random.IntN(10)), i))
				switch random.IntN(60) {
				case 0:
					proxy.Cut()
				case 1, 2:
					proxy.Restore()
				case 3:
					s.stopNATS()
					s.startNATS()
				}
			}
			proxy.Restore()
			s.drained()
			if stats, err := s.outbox.Stats(s.ctx, s.pool); err != nil || stats.Parked != 0 {
				t.Errorf("%+v, %v", stats, err)
			}
			s.allArrivedInOrder(n)
		})
	}
}

func TestTheMetricsTellWhatHappened(t *testing.T) {
	s := newShop(t, outbox.None)
	reader := metric.NewManualReader()
	c := s.settings(s.publisher(false), "")
	c.Classify, c.MeterProvider = tooLarge, metric.NewMeterProvider(metric.WithReader(reader))
	large := placed("a", 1)
	large.Payload = make([]byte, s.options.MaxPayload+1)
	s.add(s.ctx, large, placed("a", 2), placed("b", 3))
	s.relay(c)
	harness.Until(t, "all is told", func() bool { return read(t, reader)["outbox.relay.sent"] == 2 })
	got := read(t, reader)
	for name, want := range map[string]float64{
		"outbox.relay.sent": 2, "outbox.relay.failed": 1, "outbox.relay.parked": 1, "outbox.relay.lag": 2, "outbox.relay.away": 0,
		"outbox.pending": 0, "outbox.parked": 1, "outbox.oldest_pending": 0,
	} {
		if value, has := got[name]; !has || value != want {
			t.Errorf("%s: %v, %v; want %v", name, value, has, want)
		}
	}
	s.stopNATS()
	s.add(s.ctx, placed("c", 4))
	harness.Until(t, "the outage is told", func() bool {
		got := read(t, reader)
		return got["outbox.relay.away"] == 1 && got["outbox.pending"] == 1 && got["outbox.oldest_pending"] > 0
	})
}

// read sums each metric over its attributes; of a histogram it is the count.
func read(t *testing.T, reader *metric.ManualReader) map[string]float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[m.Name] += float64(p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					values[m.Name] += float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[m.Name] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[m.Name] += float64(p.Count)
				}
			}
		}
	}
	return values
}

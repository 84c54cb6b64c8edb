package messaging

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
	"github.com/idemd/idemd/e2e/harness"
)

// shop is a database with an outbox, and a NATS server that can be stopped.
type shop struct {
	*testing.T
	ctx    context.Context
	dsn    string
	pool   *pgxpool.Pool
	config outbox.Config
	outbox *outbox.Outbox

	options *server.Options
	nats    *server.Server
	js      nats.JetStreamContext
}

func newShop(t *testing.T, order outbox.Order) *shop {
	t.Helper()
	postgres := house.Postgres.Server(t)
	s := &shop{T: t, ctx: harness.Bounded(t), dsn: postgres.DSN(postgres.Database(t, "")), config: outbox.Config{Schema: "shop", Order: order}}
	s.pool = database(t, s.dsn)
	var err error
	if s.outbox, err = outbox.New(s.config); err != nil {
		t.Fatal(err)
	}
	if err := s.outbox.Migrate(s.ctx, s.pool); err != nil {
		t.Fatal(err)
	}
	s.options = &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 4096,
	}
	s.startNATS()
	t.Cleanup(s.stopNATS)
	conn, err := nats.Connect(s.nats.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if s.js, err = conn.JetStream(); err != nil {
		t.Fatal(err)
	}
	// A stream's name has no dots, so Watermill can't make one from these topics.
	if _, err := s.js.AddStream(&nats.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.event.*"}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) startNATS() {
	s.Helper()
	var err error
	if s.nats, err = server.NewServer(s.options); err != nil {
		s.Fatal(err)
	}
	go s.nats.Start()
	if !s.nats.ReadyForConnections(20 * time.Second) {
		s.Fatal("the broker does not start")
	}
	s.options.Port = s.nats.Addr().(*net.TCPAddr).Port
}

func (s *shop) stopNATS() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

// publisher is Watermill's for JetStream. deduplicating has the broker drop copies.
func (s *shop) publisher(deduplicating bool) message.Publisher {
	s.Helper()
	return closing(s.T)(wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: s.nats.ClientURL(), Marshaler: &wmnats.NATSMarshaler{},
		NatsOptions: []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond)},
		JetStream:   wmnats.JetStreamConfig{TrackMsgId: deduplicating},
	}, nil))
}

// arrived are the stream's messages, in order.
func (s *shop) arrived() (all []*message.Message) {
	s.Helper()
	sub, err := s.js.SubscribeSync("outbox.event.*", nats.OrderedConsumer())
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	info, err := s.js.StreamInfo("OUTBOX")
	if err != nil {
		s.Fatal(err)
	}
	for range info.State.Msgs {
		raw, err := sub.NextMsg(harness.Patience)
		if err != nil {
			s.Fatal(err)
		}
		m, err := (&wmnats.NATSMarshaler{}).Unmarshal(raw)
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// settings are a relay's that is quick to try again. The address replaces the database's,
// where it is given.
func (s *shop) settings(publisher message.Publisher, address string) relay.Config {
	s.Helper()
	dsn := s.dsn
	if address != "" {
		dsn = strings.Replace(dsn, house.Postgres.Server(s.T).Address(), address, 1)
	}
	postgres, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		s.Fatal(err)
	}
	return relay.Config{
		Outbox: s.config, Postgres: postgres, Publisher: publisher, Poll: 50 * time.Millisecond,
		SendTimeout: 500 * time.Millisecond, Claim: 2 * time.Second, Backoff: func(int) time.Duration { return 20 * time.Millisecond },
	}
}

// relay runs one until the test ends, or until stop.
func (s *shop) relay(c relay.Config) (stop func()) {
	s.Helper()
	r, err := relay.New(c)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(stop)
	return stop
}

func (s *shop) add(ctx context.Context, events ...outbox.Event) {
	s.Helper()
	if err := pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error { return s.outbox.Add(ctx, tx, events...) }); err != nil {
		s.Fatal(err)
	}
}

func placed(aggregateID string, n int) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: aggregateID, Type: "OrderPlaced", Payload: fmt.Append(nil, n)}
}

func (s *shop) drained() {
	s.Helper()
	harness.Until(s.T, "nothing is pending", func() bool {
		stats, err := s.outbox.Stats(s.ctx, s.pool)
		return err == nil && stats.Pending == 0
	})
}

// tooLarge is what a relay is told of the broker's limit.
func tooLarge(err error) relay.Failure {
	if errors.Is(err, nats.ErrMaxPayload) {
		return relay.Poison
	}
	return relay.Unclear
}

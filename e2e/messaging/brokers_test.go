package messaging

import (
	"context"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// ackWait is how long a broker waits for an acknowledgement: how late it delivers
	// again what a killed consumer had.
	ackWait = time.Second
	// resend is how late it delivers again what was refused.
	resend = 20 * time.Millisecond
)

// broker makes publishers and subscribers; those of one group share the messages. What it
// makes is closed when the test ends.
type broker struct {
	name       string
	publisher  func(t *testing.T) message.Publisher
	subscriber func(t *testing.T, group string) message.Subscriber
}

// eachBroker runs a test on each of them. The PostgreSQL is the one of the test's own
// database, too.
func eachBroker(t *testing.T, test func(t *testing.T, b broker, pool *pgxpool.Pool)) {
	t.Helper()
	for _, name := range []string{"NATS", "PostgreSQL"} {
		t.Run(name, func(t *testing.T) {
			server := house.Postgres.Server(t)
			pool := database(t, server.DSN(server.Database(t, "")))
			if name == "NATS" {
				test(t, onNATS(startNATS(t)), pool)
				return
			}
			test(t, onPostgreSQL(pool), pool)
		})
	}
}

// startNATS starts a server with JetStream in this process, on loopback, and returns its
// URL.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the broker does not start")
	}
	return s.ClientURL()
}

func onNATS(url string) broker {
	return broker{
		name: "NATS",
		publisher: func(t *testing.T) message.Publisher {
			t.Helper()
			return closing(t)(natsPublisher(url))
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			s, err := natsSubscriber(url, group)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

func natsPublisher(url string) (message.Publisher, error) {
	return wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: url, NatsOptions: []nats.Option{nats.MaxReconnects(-1)}, JetStream: wmnats.JetStreamConfig{AutoProvision: true},
	}, nil)
}

// natsSubscriber acknowledges by hand: otherwise the client acknowledges, too, what the
// subscriber gave up while it closed.
func natsSubscriber(url, group string) (message.Subscriber, error) {
	return wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: url, NatsOptions: []nats.Option{nats.MaxReconnects(-1)}, QueueGroupPrefix: group, SubscribersCount: 4,
		CloseTimeout: 10 * time.Second, AckWaitTimeout: 30 * time.Second, NakDelay: wmnats.NewStaticDelay(resend),
		JetStream: wmnats.JetStreamConfig{
			AutoProvision: true, DurablePrefix: group, DurableCalculator: func(prefix, topic string) string { return prefix + "-" + topic },
			SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.AckWait(ackWait), nats.DeliverAll(), nats.AckExplicit(), nats.MaxAckPending(1000)},
		},
	}, nil)
}

func onPostgreSQL(pool *pgxpool.Pool) broker {
	db := wmsql.BeginnerFromPgx(pool)
	schema := wmsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return "BYTEA" }} // its default takes JSON only
	return broker{
		name: "PostgreSQL",
		publisher: func(t *testing.T) message.Publisher {
			t.Helper()
			return closing(t)(wmsql.NewPublisher(db, wmsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil))
		},
		subscriber: func(t *testing.T, group string) message.Subscriber {
			t.Helper()
			s, err := wmsql.NewSubscriber(db, wmsql.SubscriberConfig{
				ConsumerGroup: group, SchemaAdapter: schema, OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
				InitializeSchema: true, PollInterval: resend, ResendInterval: resend, RetryInterval: resend,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}

// closing closes a publisher when the test ends.
func closing(t *testing.T) func(message.Publisher, error) message.Publisher {
	return func(p message.Publisher, err error) message.Publisher {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
}

// route runs a router with one handler on a topic, until the returned function is called
// or the test ends.
func route(t *testing.T, subscriber message.Subscriber, topic string, handler message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware) (stop func()) {
	t.Helper()
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(middlewares...)
	router.AddConsumerHandler("handler", topic, subscriber, handler)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := router.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	select {
	case <-router.Running():
	case <-ended:
	}
	return stop
}

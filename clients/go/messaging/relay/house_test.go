package relay_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	os.Exit(postgres.Run(m))
}

// house is a database with an outbox, and a broker that keeps what it is given.
type house struct {
	*testing.T
	ctx    context.Context
	dsn    string
	pool   *pgxpool.Pool
	config outbox.Config
	outbox *outbox.Outbox
	broker *broker
}

func newHouse(t *testing.T, order outbox.Order) *house {
	t.Helper()
	server := postgres.Server(t)
	return newHouseOn(t, server.DSN(server.Database(t, "")), outbox.Config{Schema: "shop", Order: order})
}

func newHouseOn(t *testing.T, dsn string, config outbox.Config) *house {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	o, err := outbox.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	return &house{T: t, ctx: ctx, dsn: dsn, pool: pool, config: config, outbox: o, broker: newBroker()}
}

// bothOrders runs a test of what holds in either.
func bothOrders(t *testing.T, test func(h *house)) {
	t.Helper()
	for name, order := range map[string]outbox.Order{"per aggregate": outbox.PerAggregate, "none": outbox.None} {
		t.Run(name, func(t *testing.T) { test(newHouse(t, order)) })
	}
}

// about is an event about an aggregate, with its number as the payload.
func about(aggregateID string, n int) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: aggregateID, Type: "OrderPlaced", Payload: fmt.Append(nil, n)}
}

// many are events 0 to n-1 of different aggregates.
func many(n int) (all []outbox.Event) {
	for i := range n {
		all = append(all, about(fmt.Sprint("a", i), i))
	}
	return all
}

func (h *house) add(events ...outbox.Event) {
	h.Helper()
	err := pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error { return h.outbox.Add(h.ctx, tx, events...) })
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) exec(sql string, arguments ...any) {
	h.Helper()
	if _, err := h.pool.Exec(h.ctx, sql, arguments...); err != nil {
		h.Fatal(err)
	}
}

func (h *house) stats() outbox.Stats {
	h.Helper()
	s, err := h.outbox.Stats(h.ctx, h.pool)
	if err != nil {
		h.Fatal(err)
	}
	return s
}

func (h *house) parked() []outbox.Row {
	h.Helper()
	rows, err := h.outbox.List(h.ctx, h.pool, outbox.Parked, 0, outbox.MaxList)
	if err != nil {
		h.Fatal(err)
	}
	return rows
}

// settings are a relay's that is quick to try again.
func (h *house) settings() relay.Config {
	h.Helper()
	postgres, err := pgxpool.ParseConfig(h.dsn)
	if err != nil {
		h.Fatal(err)
	}
	return relay.Config{
		Outbox: h.config, Postgres: postgres, Publisher: h.broker, SendTimeout: 10 * time.Second, Poll: shortest,
		Backoff: func(int) time.Duration { return 20 * time.Millisecond },
	}
}

const shortest = 50 * time.Millisecond

// run starts a relay; it is stopped at the test's end, or by stop, which waits for its end.
func (h *house) run(c relay.Config) (stop func()) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.ctx)
	wait := h.runUntil(ctx, c)
	stop = func() { cancel(); wait() }
	h.Cleanup(stop)
	return stop
}

// runUntil starts a relay that runs until ctx ends; wait waits for its end.
func (h *house) runUntil(ctx context.Context, c relay.Config) (wait func()) {
	h.Helper()
	r, err := relay.New(c)
	if err != nil {
		h.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return sync.OnceFunc(func() {
		if err := <-ended; err != nil {
			h.Error(err)
		}
	})
}

// until waits until a condition holds.
func (h *house) until(what string, holds func() bool) {
	h.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-h.ctx.Done():
			h.Fatalf("waited in vain until %s", what)
		}
	}
}

// drained waits until nothing is pending.
func (h *house) drained() {
	h.Helper()
	h.until("nothing is pending", func() bool { return h.stats().Pending == 0 })
}

// broker is a publisher that keeps what it takes.
type broker struct {
	mu    sync.Mutex
	taken []*message.Message
	tried map[string]int // by payload
	// refuse decides what becomes of a message before it is taken.
	refuse func(topic string, m *message.Message) error
}

func newBroker() *broker { return &broker{tried: map[string]int{}} }

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		b.mu.Lock()
		b.tried[string(m.Payload)]++
		refuse := b.refuse
		b.mu.Unlock()
		if refuse != nil {
			if err := refuse(topic, m); err != nil {
				return err
			}
		}
		b.mu.Lock()
		m.Metadata["topic"] = topic
		b.taken = append(b.taken, m)
		b.mu.Unlock()
	}
	return nil
}

func (b *broker) Close() error { return nil }

func (b *broker) refusing(refuse func(topic string, m *message.Message) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

// all are the messages taken so far.
func (b *broker) all() []*message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*message.Message(nil), b.taken...)
}

// payloads are those of an aggregate's messages, in order; "" = of all.
func (b *broker) payloads(aggregateID string) (all []string) {
	for _, m := range b.all() {
		if aggregateID == "" || m.Metadata[outbox.AggregateIDHeader] == aggregateID {
			all = append(all, string(m.Payload))
		}
	}
	return all
}

func (b *broker) tries(payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tried[payload]
}

// took tells whether a message with this payload was taken.
func (b *broker) took(payload string) func() bool {
	return func() bool {
		for _, p := range b.payloads("") {
			if p == payload {
				return true
			}
		}
		return false
	}
}

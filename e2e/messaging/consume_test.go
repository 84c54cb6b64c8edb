package messaging

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/internal/pgtest"
)

const (
	orders = "orders"
	dead   = "dead"
)

// warehouse is an inbox with a table of effects beside it.
func warehouse(t *testing.T, pool *pgxpool.Pool) *inbox.Table {
	t.Helper()
	table, err := inbox.New("", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Migrate(harness.Bounded(t), pool); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "CREATE TABLE reservations (what text, message text)")
	return table
}

// reserve is what an order does: one row, in the message's transaction.
func reserve(msg *message.Message) error {
	tx, is := consume.Tx(msg.Context())
	if !is {
		return errors.New("there is no transaction")
	}
	_, err := tx.Exec(msg.Context(), "INSERT INTO reservations VALUES ($1, $2)", string(msg.Payload), msg.UUID)
	return err
}

// business is what an order's message is about.
func business(msg *message.Message) (string, error) { return string(msg.Payload), nil }

func sqlMiddleware(t *testing.T, db consume.Beginner, table *inbox.Table, o consume.Options) message.HandlerMiddleware {
	t.Helper()
	if o.Consumer == "" {
		o.Consumer = "warehouse"
	}
	o.DeadLetter = dead
	middleware, err := consume.SQL(db, table, o)
	if err != nil {
		t.Fatal(err)
	}
	return middleware
}

// tally counts how deliveries end.
type tally struct{ acknowledged, refused atomic.Int64 }

func (c *tally) middleware(handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := handler(msg)
		if err == nil {
			c.acknowledged.Add(1)
		} else {
			c.refused.Add(1)
		}
		return produced, err
	}
}

// unruly is a publisher that sends messages twice and more, in another order, and some of
// them long after the others.
type unruly struct {
	message.Publisher
	random *rand.Rand
	topic  string
	now    []*message.Message
	late   []*message.Message
}

func newUnruly(t *testing.T, p message.Publisher) *unruly {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &unruly{Publisher: p, random: rand.New(rand.NewPCG(seed, 0))}
}

// Publish implements message.Publisher: nothing is sent until flush.
func (u *unruly) Publish(topic string, messages ...*message.Message) error {
	u.topic = topic
	for _, msg := range messages {
		for range 1 + u.random.IntN(3) {
			if u.random.IntN(10) == 0 {
				u.late = append(u.late, msg.Copy())
				continue
			}
			u.now = append(u.now, msg.Copy())
		}
	}
	return nil
}

// flush sends what is held back, in any order and in batches of any size, and returns how
// many that are.
func (u *unruly) flush(held *[]*message.Message) (sent int, err error) {
	all := *held
	*held = nil
	u.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for rest := all; len(rest) > 0; {
		n := 1 + u.random.IntN(min(len(rest), 20))
		if err := u.Publisher.Publish(u.topic, rest[:n]...); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(all), nil
}

func TestMessagesThatComeTwiceInAnotherOrderAndLateCountOnce(t *testing.T) {
	eachBroker(t, func(t *testing.T, b broker, pool *pgxpool.Pool) {
		const n = 100
		table := warehouse(t, pool)
		publisher := b.publisher(t)
		var ended tally
		middleware := sqlMiddleware(t, pool, table, consume.Options{Publisher: publisher, Business: business})
		for range 2 { // processes that share the work
			route(t, b.subscriber(t, "warehouse"), orders, reserve, ended.middleware, middleware)
		}
		chaos := newUnruly(t, publisher)
		for i := range n {
			about := message.Payload(fmt.Sprint("order-", i))
			if err := chaos.Publish(orders, message.NewMessage(fmt.Sprint("m", i), about)); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 { // and another message about it
				if err := chaos.Publish(orders, message.NewMessage(fmt.Sprint("again", i), about)); err != nil {
					t.Fatal(err)
				}
			}
		}
		sent := 0
		for _, held := range []*[]*message.Message{&chaos.now, &chaos.late} {
			more, err := chaos.flush(held)
			if err != nil {
				t.Fatal(err)
			}
			sent += more
			harness.Until(t, "all acknowledgements", func() bool { return ended.acknowledged.Load() >= int64(sent) })
		}
		// Every delivery is acknowledged; some may be so twice, if the broker was impatient.
		harness.Until(t, "all orders", func() bool { return count(t, pool, "SELECT count(DISTINCT what) FROM reservations") == n })
		mustCount(t, pool, n, "SELECT count(*) FROM reservations")
		t.Logf("%d deliveries of %d orders", ended.acknowledged.Load(), n)
	})
}

func TestPoisonIsPutAsideAndTheGoodOnesBehindItAreHandled(t *testing.T) {
	eachBroker(t, func(t *testing.T, b broker, pool *pgxpool.Pool) {
		table := warehouse(t, pool)
		publisher := b.publisher(t)
		handler := func(msg *message.Message) error {
			if msg.Metadata["poison"] != "" {
				_ = reserve(msg)
				return errors.New("there is no such thing")
			}
			return reserve(msg)
		}
		route(t, b.subscriber(t, "warehouse"), orders, handler, sqlMiddleware(t, pool, table, consume.Options{Publisher: publisher, Attempts: 3}))
		letters := collect(t, b.subscriber(t, "clerk"), dead)
		for i := range 20 {
			msg := message.NewMessage(fmt.Sprint("m", i), message.Payload(fmt.Sprint("order-", i)))
			if i < 10 {
				msg.Metadata["poison"] = "yes"
			}
			if err := publisher.Publish(orders, msg); err != nil {
				t.Fatal(err)
			}
		}
		harness.Until(t, "the good ones", func() bool { return count(t, pool, "SELECT count(*) FROM reservations") == 10 })
		harness.Until(t, "the dead letters", func() bool { return len(letters.ids()) == 10 })
		for _, letter := range letters.all() {
			if m := letter.Metadata; m["poison"] == "" || m[consume.AttemptsKey] != "3" || m[consume.TopicKey] != orders || m[consume.ConsumerKey] != "warehouse" {
				t.Errorf("a letter says %v", m)
			}
		}
		mustCount(t, pool, 10, "SELECT count(*) FROM reservations")
	})
}

// pile is what has come on a topic.
type pile struct {
	mu       sync.Mutex
	messages []*message.Message
}

func (p *pile) all() []*message.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*message.Message(nil), p.messages...)
}

// ids are the distinct messages' whose letters these are.
func (p *pile) ids() map[string]bool {
	ids := map[string]bool{}
	for _, msg := range p.all() {
		ids[msg.Metadata[consume.MessageKey]] = true
	}
	return ids
}

// A broker that drops copies by their id would take a letter for a copy: of the message, or of
// another consumer's letter.
func TestLettersOutliveABrokerThatDropsCopies(t *testing.T) {
	server := house.Postgres.Server(t)
	pool := database(t, server.DSN(server.Database(t, "")))
	table := warehouse(t, pool)
	url := startNATS(t)
	b := onNATS(url)
	tracking := closing(t)(wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: url, JetStream: wmnats.JetStreamConfig{AutoProvision: true, TrackMsgId: true},
	}, nil))
	for _, consumer := range []string{"warehouse", "billing"} {
		route(t, b.subscriber(t, consumer), orders, func(*message.Message) error { return errors.New("there is no such thing") },
			sqlMiddleware(t, pool, table, consume.Options{Consumer: consumer, Publisher: tracking, Attempts: 2}))
	}
	letters := collect(t, b.subscriber(t, "clerk"), dead)
	if err := tracking.Publish(orders, message.NewMessage("m1", message.Payload("order-1"))); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "both consumers' letters", func() bool {
		consumers := map[string]bool{}
		for _, letter := range letters.all() {
			consumers[letter.Metadata[consume.ConsumerKey]] = letter.Metadata[consume.MessageKey] == "m1"
		}
		return consumers["warehouse"] && consumers["billing"]
	})
}

func collect(t *testing.T, subscriber message.Subscriber, topic string) *pile {
	t.Helper()
	p := &pile{}
	route(t, subscriber, topic, func(msg *message.Message) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.messages = append(p.messages, msg.Copy())
		return nil
	})
	return p
}

// The database is killed while messages are handled: what was not committed comes again.
func TestADatabaseThatIsKilledInTheMiddleLosesNothingAndDoublesNothing(t *testing.T) {
	const n = 150
	server := pgtest.Start(t)
	pool := database(t, server.DSN("postgres"))
	table := warehouse(t, pool)
	b := onNATS(startNATS(t))
	publisher := b.publisher(t)
	var handled atomic.Int64
	killed := make(chan struct{})
	handler := func(msg *message.Message) error {
		err := reserve(msg)
		if handled.Add(1) == n/3 {
			server.Kill()
			close(killed)
		}
		return err
	}
	var ended tally
	route(t, b.subscriber(t, "warehouse"), orders, handler, ended.middleware, sqlMiddleware(t, pool, table, consume.Options{Publisher: publisher}))
	for i := range n {
		if err := publisher.Publish(orders, message.NewMessage(fmt.Sprint("m", i), message.Payload(fmt.Sprint("order-", i)))); err != nil {
			t.Fatal(err)
		}
	}
	harness.Await(t, "the kill", killed)
	before := ended.refused.Load()
	harness.Until(t, "deliveries to a dead database", func() bool { return ended.refused.Load() > before+consume.DefaultAttempts })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, "all orders", func() bool { return count(t, pool, "SELECT count(DISTINCT what) FROM reservations") == n })
	harness.Until(t, "all acknowledgements", func() bool { return ended.acknowledged.Load() >= n })
	mustCount(t, pool, n, "SELECT count(*) FROM reservations")
	mustCount(t, pool, 0, "SELECT count(*) FROM idem_inbox_failures")
}

package consume_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// shelf is a publisher that keeps what it is given.
type shelf struct {
	mu    sync.Mutex
	away  error
	taken map[string][]*message.Message
}

func (s *shelf) Publish(topic string, messages ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	if s.taken == nil {
		s.taken = map[string][]*message.Message{}
	}
	s.taken[topic] = append(s.taken[topic], messages...)
	return nil
}

func (s *shelf) Close() error { return nil }

func (s *shelf) of(topic string) []*message.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[topic]
}

// house is a database with an inbox and one table of effects, and a shelf for what is not
// handled.
type house struct {
	*testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	config *pgxpool.Config
	inbox  *inbox.Table
	shelf  *shelf
}

func newHouse(t *testing.T) *house {
	t.Helper()
	server := postgres.Server(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	config, err := pgxpool.ParseConfig(server.DSN(server.Database(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 20
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	table, err := inbox.New("", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	h := &house{t, ctx, pool, config, table, &shelf{}}
	h.exec("CREATE TABLE effects (what text)")
	return h
}

func (h *house) exec(sql string, arguments ...any) {
	h.Helper()
	if _, err := h.pool.Exec(h.ctx, sql, arguments...); err != nil {
		h.Fatal(err)
	}
}

func (h *house) mustCount(want int, sql string, arguments ...any) {
	h.Helper()
	var n int
	if err := h.pool.QueryRow(h.ctx, sql, arguments...).Scan(&n); err != nil || n != want {
		h.Errorf("%s: %d, %v, want %d", sql, n, err, want)
	}
}

// options are those of the warehouse.
func (h *house) options() consume.Options {
	return consume.Options{Consumer: "warehouse", Publisher: h.shelf, DeadLetter: "dead"}
}

// sql is a handler in the middleware, on a database.
func (h *house) sql(db consume.Beginner, o consume.Options, handler message.HandlerFunc) message.HandlerFunc {
	h.Helper()
	middleware, err := consume.SQL(db, h.inbox, o)
	if err != nil {
		h.Fatal(err)
	}
	return middleware(handler)
}

// reserve is an effect, in the message's transaction.
func reserve(msg *message.Message) ([]*message.Message, error) {
	tx, is := consume.Tx(msg.Context())
	if !is {
		return nil, errors.New("there is no transaction")
	}
	_, err := tx.Exec(msg.Context(), "INSERT INTO effects VALUES ($1)", string(msg.Payload))
	return nil, err
}

// counted counts the runs of a handler.
func counted(runs *int, handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		*runs++
		return handler(msg)
	}
}

func failing(err error) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, _ = reserve(msg)
		return nil, err
	}
}

var errSoldOut = errors.New("sold out")

// delivery is one of a message.
func delivery(id string) *message.Message {
	msg := message.NewMessage(id, message.Payload("order-"+id))
	msg.Metadata["kind"] = "order.placed"
	return msg
}

func (h *house) acknowledged(handler message.HandlerFunc, msg *message.Message) bool {
	h.Helper()
	produced, err := handler(msg)
	if len(produced) > 0 {
		h.Errorf("%d messages would be published", len(produced))
	}
	return err == nil
}

// begins is a database whose BEGIN, or COMMIT, goes another way.
type begins struct {
	consume.Beginner
	begin  func(context.Context) error
	commit func(context.Context, pgx.Tx) error
}

type commits struct {
	pgx.Tx
	commit func(context.Context, pgx.Tx) error
}

func (c *commits) Commit(ctx context.Context) error { return c.commit(ctx, c.Tx) }

func (b *begins) Begin(ctx context.Context) (pgx.Tx, error) {
	if b.begin != nil {
		if err := b.begin(ctx); err != nil {
			return nil, err
		}
	}
	tx, err := b.Beginner.Begin(ctx)
	if err != nil || b.commit == nil {
		return tx, err
	}
	return &commits{tx, b.commit}, nil
}

// run runs a router with one handler on a topic until the test ends.
func run(t *testing.T, subscriber message.Subscriber, topic string, handler message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middlewares...)
	router.AddConsumerHandler("handler", topic, subscriber, handler)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-router.Running()
}

package inbox_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/inbox"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// house is a database with an inbox and one table of effects.
type house struct {
	*testing.T
	ctx   context.Context
	pool  *pgxpool.Pool
	table *inbox.Table
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
	config.MaxConns = 60 // the tests' fifty, and who looks at them
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	table, err := inbox.New("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t, ctx, pool, table}
	for range 2 { // the second time changes nothing
		if err := table.Migrate(ctx, pool); err != nil {
			t.Fatal(err)
		}
	}
	h.exec("CREATE TABLE effects (what text)")
	return h
}

func (h *house) exec(sql string, arguments ...any) {
	h.Helper()
	if _, err := h.pool.Exec(h.ctx, sql, arguments...); err != nil {
		h.Fatal(err)
	}
}

func (h *house) count(sql string, arguments ...any) (n int) {
	h.Helper()
	if err := h.pool.QueryRow(h.ctx, sql, arguments...).Scan(&n); err != nil {
		h.Fatal(err)
	}
	return n
}

func (h *house) mustCount(want int, sql string, arguments ...any) {
	h.Helper()
	if n := h.count(sql, arguments...); n != want {
		h.Errorf("%s: %d, want %d", sql, n, want)
	}
}

func (h *house) begin() pgx.Tx {
	h.Helper()
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (h *house) commit(tx pgx.Tx) {
	h.Helper()
	if err := tx.Commit(h.ctx); err != nil {
		h.Fatal(err)
	}
}

// awaitLock waits until a session waits for another's lock.
func (h *house) awaitLock() {
	h.Helper()
	for h.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
		if h.ctx.Err() != nil {
			h.Fatal("nobody waits")
		}
	}
}

// order is a message about an order.
func order(id, business string) inbox.Message {
	return inbox.Message{Consumer: "warehouse", ID: id, Business: business}
}

// reserve is what a message does: an effect, named by whoever does it.
func reserve(by string) inbox.Func {
	return func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, "INSERT INTO public.effects VALUES ($1)", by)
		return []byte("reserved by " + by), err
	}
}

// once is a transaction of its own.
func (h *house) once(m inbox.Message, by string) (result string, first bool, err error) {
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	body, first, err := h.table.Once(h.ctx, tx, m, reserve(by))
	if err != nil {
		return "", false, err
	}
	return string(body), first, tx.Commit(h.ctx)
}

func (h *house) mustOnce(m inbox.Message, by, want string, wantFirst bool) {
	h.Helper()
	if result, first, err := h.once(m, by); err != nil || result != "reserved by "+want || first != wantFirst {
		h.Errorf("%v by %s: %q, first %v, %v; want that of %s", m, by, result, first, err, want)
	}
}

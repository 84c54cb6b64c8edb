package fence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/fence"
	"github.com/idemd/idemd/internal/pgtest"
)

// The row that a transaction has written itself looks like that of an attempt that has
// committed: a success of nothing would be recorded.
func TestGuardTwiceInOneTransactionIsAnError(t *testing.T) {
	h := newHouse(t)
	g := grant(1, 10)
	effects := 0
	result, err := h.table.Run(h.ctx, h.pool, g, func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		if done, err := h.table.Guard(ctx, tx, g); done != nil || err != nil {
			return done, err
		}
		effects++
		return &idem.Result{Status: 201}, nil
	})
	if err == nil || result != nil || effects != 0 {
		t.Errorf("got %v, %v and %d effects", result, err, effects)
	}
	if n := h.count("SELECT count(*) FROM shop.idem_fence"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	// Within a savepoint that is undone it is not twice.
	tx := h.begin()
	savepoint, err := tx.Begin(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, within := range []pgx.Tx{savepoint, tx} {
		if done, err := h.table.Guard(h.ctx, within, g); done != nil || err != nil {
			t.Errorf("got %v, %v", done, err)
		}
		if within == savepoint {
			if err := savepoint.Rollback(h.ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	other := grant(1, 10)
	other.Key = "another"
	if done, err := h.table.Guard(h.ctx, tx, other); done != nil || err != nil {
		t.Errorf("another operation in the same transaction: %v, %v", done, err)
	}
}

// Recorded as done in idemd, it must be done here, too.
func TestWhatRunHasCommittedOutlivesACrashWhateverTheSessionSays(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("synchronous_commit=off"), pgtest.Setting("wal_writer_delay=10s"))
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	table, err := fence.New("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Migrate(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE effects (key text); CHECKPOINT"); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Run(ctx, pool, grant(1, 10), func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ('k')")
		return nil, err
	}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	rows, err := server.Exec("postgres", "SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM shop.idem_fence)")
	if err != nil || rows[0][0] != "1" || rows[0][1] != "1" {
		t.Errorf("after the crash: %v %v", rows, err)
	}
}

// A server's messages may be in any language.
func TestACommitThatIsRefusedInAnotherLanguageIsRefused(t *testing.T) {
	h := newHouse(t)
	runs := 0
	refusal := &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23503"}
	_, err := h.table.Run(h.ctx, refusing{h.pool, refusal}, grant(1, 10), func(context.Context, pgx.Tx) (*idem.Result, error) {
		runs++
		return nil, nil
	})
	if runs != 1 || idem.Declared(err) {
		t.Errorf("%d runs, declared unknown %v: %v", runs, idem.Declared(err), err)
	}
}

// refusing is a database that refuses each COMMIT.
type refusing struct {
	*pgxpool.Pool
	refusal error
}

func (r refusing) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := r.Pool.Begin(ctx)
	return refusedTx{tx, r.refusal}, err
}

type refusedTx struct {
	pgx.Tx
	refusal error
}

func (tx refusedTx) Commit(ctx context.Context) error {
	_ = tx.Rollback(ctx)
	return tx.refusal
}

// Nothing crosses tenants: a stored result least of all.
func TestTenantsAndNamespacesAreApart(t *testing.T) {
	h := newHouse(t)
	for attempt, whose := range [][2]string{{"acme", ""}, {"other", ""}, {"acme", "mails"}} {
		g := grant(0, attempt+1)
		g.Tenant, g.Namespace = whose[0], whose[1]
		if _, err := h.run(g, h.pool); err != nil {
			t.Errorf("%v: %v", whose, err)
		}
	}
	if n := h.count("SELECT count(*) FROM effects"); n != 3 {
		t.Errorf("%d effects, want one for each", n)
	}
}

func TestASmallerFenceOfALaterLifeIsRefused(t *testing.T) {
	h := newHouse(t)
	if _, err := h.run(grant(0, 5), h.pool); err != nil {
		t.Fatal(err)
	}
	g := grant(1, 1)
	g.Fence = grant(0, 4).Fence
	var stale *fence.StaleError
	if _, err := h.run(g, h.pool); !errors.As(err, &stale) {
		t.Errorf("got %v", err)
	}
}

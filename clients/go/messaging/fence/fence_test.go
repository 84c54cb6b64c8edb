package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/fence"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// house is a database with a fence and one table of effects.
type house struct {
	*testing.T
	ctx   context.Context
	pool  *pgxpool.Pool
	table *fence.Table
}

func newHouse(t *testing.T) *house {
	t.Helper()
	server := postgres.Server(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	pool, err := pgxpool.New(ctx, server.DSN(server.Database(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	table, err := fence.New("shop", "")
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t, ctx, pool, table}
	for range 2 { // the second time changes nothing
		if err := table.Migrate(ctx, pool); err != nil {
			t.Fatal(err)
		}
	}
	h.exec("CREATE TABLE effects (key text, attempt int)")
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

func (h *house) begin() pgx.Tx {
	h.Helper()
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (h *house) guard(tx pgx.Tx, g *idem.Grant) *idem.Result {
	h.Helper()
	committed, err := h.table.Guard(h.ctx, tx, g)
	if err != nil {
		h.Fatal(err)
	}
	return committed
}

func (h *house) commit(tx pgx.Tx) {
	h.Helper()
	if err := tx.Commit(h.ctx); err != nil {
		h.Fatal(err)
	}
}

// grant is the one of an attempt in a life of the key.
func grant(life, attempt int) *idem.Grant {
	at := time.UnixMicro(1_800_000_000_000_000).Add(time.Duration(life) * time.Hour)
	return &idem.Grant{
		Tenant: "acme", Key: "order-1", Attempt: int32(attempt), ReservedAt: at,
		Fence: at.UnixMicro() + int64(attempt-1),
	}
}

func receipt(attempt int) *idem.Result {
	return &idem.Result{Status: 201, Body: fmt.Append(nil, "by attempt ", attempt)}
}

// effect writes what was done, by an attempt.
func effect(attempt int) fence.Effect {
	return func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ('order-1', $1)", attempt)
		return receipt(attempt), err
	}
}

func (h *house) run(g *idem.Grant, db fence.Beginner) (string, error) {
	result, err := h.table.Run(h.ctx, db, g, effect(int(g.Attempt)))
	return string(result.GetBody()), err
}

func TestOneAttemptCommitsAndTheOthersAreGivenItsResult(t *testing.T) {
	for _, order := range [][]int{{1, 2, 3}, {2, 1, 3}, {3, 1, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			h := newHouse(t)
			for _, attempt := range order {
				if got, err := h.run(grant(0, attempt), h.pool); err != nil || got != fmt.Sprint("by attempt ", order[0]) {
					t.Errorf("attempt %d: %q, %v", attempt, got, err)
				}
			}
			if n := h.count("SELECT count(*) FROM effects"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

func TestAForgottenKeyThatIsUsedAgainIsAnotherOperation(t *testing.T) {
	h := newHouse(t)
	for life := range 2 {
		if _, err := h.run(grant(life, 1), h.pool); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.count("SELECT count(*) FROM effects"); n != 2 {
		t.Errorf("%d effects of two operations", n)
	}
	_, err := h.run(grant(0, 2), h.pool)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !stale.ReservedAt.Equal(grant(1, 1).ReservedAt) {
		t.Errorf("an attempt of the earlier operation hears %v", err)
	}
	if n := h.count("SELECT count(*) FROM effects"); n != 2 {
		t.Errorf("%d effects of two operations", n)
	}
}

func TestASecondAttemptOfAnOperationWhoseFirstDidNotCommitIsNotTakenForAnEarlierLifes(t *testing.T) {
	h := newHouse(t)
	if _, err := h.run(grant(0, 1), h.pool); err != nil {
		t.Fatal(err)
	}
	// The key is forgotten and used again; the first attempt dies, the second one commits.
	if got, err := h.run(grant(1, 2), h.pool); err != nil || got != "by attempt 2" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAnAttemptWaitsForTheOneThatIsInItsTransaction(t *testing.T) {
	for name, end := range map[string]struct {
		commits bool
		want    string
	}{"that commits": {true, "by attempt 1"}, "that rolls back": {false, "by attempt 2"}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			first := h.begin()
			h.guard(first, grant(0, 1))
			if err := h.table.Store(h.ctx, first, grant(0, 1), receipt(1)); err != nil {
				t.Fatal(err)
			}
			heard := make(chan string, 1)
			go func() {
				got, err := h.run(grant(0, 2), h.pool)
				heard <- fmt.Sprint(got, err)
			}()
			h.awaitLock()
			if end.commits {
				h.commit(first)
			} else if err := first.Rollback(h.ctx); err != nil {
				t.Fatal(err)
			}
			if got := <-heard; got != end.want+"<nil>" {
				t.Errorf("the second attempt: %s", got)
			}
		})
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

// faulty is a database whose COMMITs fail, each in its way.
type faulty struct {
	*pgxpool.Pool
	mu      sync.Mutex
	commits []func(context.Context, pgx.Tx) error
}

type faultyTx struct {
	pgx.Tx
	commit func(context.Context, pgx.Tx) error
}

func (tx *faultyTx) Commit(ctx context.Context) error { return tx.commit(ctx, tx.Tx) }

func (f *faulty) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := f.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.commits) == 0 {
		return tx, nil
	}
	commit := f.commits[0]
	f.commits = f.commits[1:]
	return &faultyTx{tx, commit}, nil
}

func committedButLost(ctx context.Context, tx pgx.Tx) error {
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

func lostBeforeCommit(ctx context.Context, tx pgx.Tx) error {
	_ = tx.Conn().Close(ctx)
	return io.ErrUnexpectedEOF
}

func TestALostReplyToCommitIsFoundOutAndNothingCommitsTwice(t *testing.T) {
	type commit = func(context.Context, pgx.Tx) error
	for name, commits := range map[string][]commit{
		"committed":              {committedButLost},
		"not committed":          {lostBeforeCommit},
		"not committed, then so": {lostBeforeCommit, committedButLost},
		"not, not, committed":    {lostBeforeCommit, lostBeforeCommit, committedButLost},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			if got, err := h.run(grant(0, 1), &faulty{Pool: h.pool, commits: commits}); err != nil || got != "by attempt 1" {
				t.Errorf("%q, %v", got, err)
			}
			if n := h.count("SELECT count(*) FROM effects"); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

func TestWhatCanNotBeFoundOutIsUnknownAndTheNextAttemptIsGivenTheResult(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancel(h.ctx)
	db := &faulty{Pool: h.pool, commits: []func(context.Context, pgx.Tx) error{func(ctx context.Context, tx pgx.Tx) error {
		err := committedButLost(ctx, tx)
		cancel()
		return err
	}}}
	_, err := h.table.Run(ctx, db, grant(0, 1), effect(1))
	if !idem.Declared(err) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("it is told %v", err)
	}
	if got, err := h.run(grant(0, 2), h.pool); err != nil || got != "by attempt 1" {
		t.Errorf("the next attempt: %q, %v", got, err)
	}
}

func TestAnEffectsErrorRollsBackAndComesAsItIs(t *testing.T) {
	h := newHouse(t)
	refusal := idem.Final(errors.New("sold out"))
	_, err := h.table.Run(h.ctx, h.pool, grant(0, 1), func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		_, _ = effect(1)(ctx, tx)
		return nil, refusal
	})
	if err != refusal { //nolint:errorlint // as it is
		t.Errorf("%v", err)
	}
	if n := h.count("SELECT count(*) FROM effects") + h.count("SELECT count(*) FROM shop.idem_fence"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestAnEffectRunsAgainWhereTheDatabaseAsksForIt(t *testing.T) {
	h := newHouse(t)
	runs := 0
	result, err := h.table.Run(h.ctx, h.pool, grant(0, 1), func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		if runs++; runs < 3 {
			_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")
			return nil, err
		}
		return effect(1)(ctx, tx)
	})
	if err != nil || runs != 3 || string(result.GetBody()) != "by attempt 1" {
		t.Errorf("after %d runs: %v, %v", runs, result, err)
	}
}

func TestACommitThatTheDatabaseRefusesIsNoUnknown(t *testing.T) {
	h := newHouse(t)
	h.exec("CREATE TABLE twice (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	runs := 0
	_, err := h.table.Run(h.ctx, h.pool, grant(0, 1), func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		runs++
		_, err := tx.Exec(ctx, "INSERT INTO twice VALUES (1), (1)")
		return nil, err
	})
	if err == nil || idem.Declared(err) || runs != 1 {
		t.Errorf("after %d runs: %v", runs, err)
	}
}

func TestFiftyAttemptsAtOnceCommitOne(t *testing.T) {
	h := newHouse(t)
	var attempts sync.WaitGroup
	answers := make(chan string, 50)
	for i := range 50 {
		attempts.Go(func() {
			got, err := h.run(grant(0, i+1), h.pool)
			answers <- fmt.Sprint(got, err)
		})
	}
	attempts.Wait()
	close(answers)
	first := <-answers
	for got := range answers {
		if got != first {
			t.Errorf("answered %s and %s", first, got)
		}
	}
	if n := h.count("SELECT count(*) FROM effects"); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestRowsAreSweptWhenTheirRetentionIsOver(t *testing.T) {
	h := newHouse(t)
	h.exec(`INSERT INTO shop.idem_fence SELECT 'acme', 'default', 'old-' || n, clock_timestamp(), 1, 1, '', clock_timestamp() - interval '31 days' FROM generate_series(1, 1200) n`)
	if _, err := h.run(grant(0, 1), h.pool); err != nil {
		t.Fatal(err)
	}
	if swept, err := h.table.Sweep(h.ctx, h.pool, fence.DefaultRetention); swept != 1200 || err != nil {
		t.Errorf("%d are swept, %v", swept, err)
	}
	if n := h.count("SELECT count(*) FROM shop.idem_fence"); n != 1 {
		t.Errorf("%d rows are left", n)
	}
	if _, err := h.table.Sweep(h.ctx, h.pool, 0); err == nil {
		t.Error("no retention is taken for one")
	}
}

func TestAGrantThatNoDoHasMadeIsRefused(t *testing.T) {
	h := newHouse(t)
	for name, g := range map[string]*idem.Grant{
		"nil": nil, "zero": {}, "no time": {Key: "k", Fence: 1}, "no fence": {Key: "k", ReservedAt: time.Now()},
	} {
		if _, err := h.table.Guard(h.ctx, h.begin(), g); err == nil {
			t.Errorf("%s is guarded", name)
		}
	}
}

func TestNamesThatWouldBeCutOrQuotedAreRefused(t *testing.T) {
	for _, name := range [][2]string{{"Shop", ""}, {"shop; DROP", ""}, {"", "a-b"}, {"", "x23456789_123456789_123456789_123456789_1"}, {"1a", ""}} {
		if _, err := fence.New(name[0], name[1]); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
}

package messaging

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/e2e/harness"
)

var house = harness.House{Root: "../../"}

// roleVariable makes the test program a process that tests kill: it says which of roles.
const roleVariable = "IDEMD_E2E_ROLE"

// roles are what the test program can be instead; each returns its exit code.
func roles() map[string]func() int {
	return map[string]func() int{
		consumerRole: consumeUntilKilled,
		mailerRole:   mailUntilKilled,
	}
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(roles()[role]())
	}
	os.Exit(house.Run(m))
}

// database is an empty one on a server.
func database(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, arguments ...any) {
	t.Helper()
	if _, err := pool.Exec(harness.Bounded(t), sql, arguments...); err != nil {
		t.Fatal(err)
	}
}

// count is -1 where the database does not answer.
func count(t *testing.T, pool *pgxpool.Pool, sql string, arguments ...any) int {
	t.Helper()
	n := -1
	_ = pool.QueryRow(harness.Bounded(t), sql, arguments...).Scan(&n)
	return n
}

func mustCount(t *testing.T, pool *pgxpool.Pool, want int, sql string, arguments ...any) {
	t.Helper()
	if n := count(t, pool, sql, arguments...); n != want {
		t.Errorf("%s: %d, want %d", sql, n, want)
	}
}

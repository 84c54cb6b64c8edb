package pgstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// fixture is the server of this package's tests and a migrated database to copy.
type fixture struct {
	pgtest.Shared
	once     sync.Once
	template string
}

var postgres fixture

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// database makes a migrated, empty database and returns its name.
func (f *fixture) database(t testing.TB) string {
	t.Helper()
	server := f.Server(t)
	f.once.Do(func() {
		const name = "template_idemd"
		if _, err := server.Exec("postgres", "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
			t.Fatal(err)
		}
		if err := Migrate(t.Context(), server.DSN(name)); err != nil {
			t.Fatal(err)
		}
		f.template = name
	})
	return server.Database(t, f.template)
}

// frozen replaces the clock of a database by a number in a table.
const frozen = `CREATE TABLE idemd.frozen_clock (now bigint NOT NULL);
INSERT INTO idemd.frozen_clock VALUES (%d);
CREATE OR REPLACE FUNCTION idemd.clock() RETURNS bigint LANGUAGE sql VOLATILE
    AS 'SELECT now FROM idemd.frozen_clock';`

// openWith makes a harness on a fresh database whose clock stands still.
func openWith(t testing.TB, parameters string) *storetest.Harness {
	t.Helper()
	return openThrough(t, func(server *pgtest.Server, database string) string { return server.DSN(database) + parameters })
}

// openThrough is openWith by another way to the database.
func openThrough(t testing.TB, way func(*pgtest.Server, string) string) *storetest.Harness {
	t.Helper()
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, fmt.Sprintf(frozen, storetest.Start))
	dsn := way(server, database)
	rig := &rig{t: t, server: server, database: database}
	h := &storetest.Harness{
		Store: openStore(t, Options{DSN: dsn}),
		SetClock: func(now reservation.Time) {
			must(t, server, database, fmt.Sprintf("UPDATE idemd.frozen_clock SET now = %d", now))
		},
		Hold:   rig.hold,
		Damage: rig.damage,
	}
	h.Reopen = func() {
		_ = h.Store.Close()
		h.Store = openStore(t, Options{DSN: dsn})
	}
	return h
}

func openStore(t testing.TB, options Options) *Store {
	t.Helper()
	options.Logger = textLogger(t.Output())
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func textLogger(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

// rig is what tests do to a database beside the store.
type rig struct {
	t        testing.TB
	server   *pgtest.Server
	database string
}

// hold holds the row at the address, or the place of one that isn't there, in an open
// transaction. Releasing rolls it back.
func (r *rig) hold(a reservation.Address) (release func()) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, r.server.DSN(r.database))
	if err != nil {
		r.t.Fatal(err)
	}
	exec := func(sql string, args ...any) int64 {
		tag, err := conn.Exec(ctx, sql, args...)
		if err != nil {
			r.t.Fatalf("%s: %v", sql, err)
		}
		return tag.RowsAffected()
	}
	exec("BEGIN")
	const there = "SELECT 1 FROM idemd.reservations WHERE tenant = $1 AND namespace = $2 AND key = $3 FOR UPDATE"
	if exec(there, a.Tenant, a.Namespace, a.Key) == 0 {
		exec(insertBare, a.Tenant, a.Namespace, a.Key)
	}
	return func() {
		exec("ROLLBACK")
		_ = conn.Close(ctx)
	}
}

// lockGate holds the advisory lock 1, for which a test's trigger waits.
func (r *rig) lockGate() (release func()) {
	conn, err := pgx.Connect(context.Background(), r.server.DSN(r.database))
	if err == nil {
		_, err = conn.Exec(context.Background(), "SELECT pg_advisory_lock(1)")
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return func() { _ = conn.Close(context.Background()) }
}

// insertBare writes a row of which only the place matters.
var insertBare = bareStatement()

func bareStatement() string {
	zeros := map[string]string{"bigint": "1", "integer": "1", "smallint": "1", "boolean": "false", "text": "''", "bytea": "''"}
	columns := recordColumns()
	return "INSERT INTO idemd.reservations (tenant, namespace, key, " + join(columns, named) + ") VALUES ($1, $2, $3, " +
		join(columns, func(_ int, c column) string { return zeros[c.kind] }) + ")"
}

func (r *rig) damage(a reservation.Address) {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	must(r.t, r.server, r.database, fmt.Sprintf(
		`UPDATE idemd.reservations SET result = '\xff' WHERE tenant = %s AND namespace = %s AND key = %s`,
		quote(a.Tenant), quote(a.Namespace), quote(a.Key)))
}

func must(t testing.TB, server *pgtest.Server, database, statements string) [][]string {
	t.Helper()
	rows, err := server.Exec(database, statements)
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return rows
}

func TestConformance(t *testing.T) {
	for name, parameters := range map[string]string{
		"prepared statements": "",
		"exec mode, as for a pooler without prepared statements": "&default_query_exec_mode=exec",
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB) *storetest.Harness { return openWith(t, parameters) })
		})
	}
}

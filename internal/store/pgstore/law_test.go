package pgstore

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func TestCommitsAreOnDiskBeforeTheAnswerWhateverTheSessionSays(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, fmt.Sprintf(`ALTER DATABASE %[1]s SET synchronous_commit = off;
		ALTER DATABASE %[1]s SET default_transaction_isolation = 'serializable'`, database))
	s := openStore(t, Options{DSN: server.DSN(database)})
	settings, err := s.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if settings.SynchronousCommit != "on" || settings.Isolation != "read committed" {
		t.Errorf("in force are %+v", settings)
	}
	// And where it counts: a trigger notes what is in force as a row is written.
	must(t, server, database, `BEGIN;
		CREATE TABLE public.seen (setting text);
		CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER INSERT OR UPDATE ON idemd.reservations FOR EACH ROW EXECUTE FUNCTION public.note(); COMMIT`)
	settle(t, s, storetest.Reserve(storetest.At("k"), 1))
	settle(t, s, storetest.Complete(storetest.At("k"), 1, "done"))
	for _, row := range must(t, server, database, "SELECT setting FROM public.seen") {
		if row[0] != "on" {
			t.Errorf("a row was written with synchronous_commit = %s", row[0])
		}
	}
}

func TestAServerThatDoesNotFlushIsWarnedOfLoudly(t *testing.T) {
	var log strings.Builder
	s := &Store{log: textLogger(&log)}
	if err := s.judge(t.Context(), Settings{Encoding: "UTF8", Fsync: "off", FullPageWrites: "on"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "LOSES") {
		t.Errorf("the log says %q", log.String())
	}
	if err := s.judge(t.Context(), Settings{Encoding: "LATIN1", Fsync: "on", FullPageWrites: "on"}); err == nil {
		t.Error("an encoding that can't keep every text is accepted")
	}
}

func TestTwoConnectionsServeFiftyCallersASweeperAndReadiness(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database), MaxConns: 2})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	together(52, func(i int) {
		for round := range 10 {
			switch i {
			case 50:
				if _, err := s.Sweep(ctx, 10); err != nil {
					t.Errorf("Sweep: %v", err)
				}
			case 51:
				if err := s.Ping(ctx); err != nil {
					t.Errorf("Ping: %v", err)
				}
			default:
				a := storetest.At(fmt.Sprint("pool-", i, "-", round))
				settle(t, s, storetest.Reserve(a, i))
				settle(t, s, storetest.Complete(a, i, ""))
			}
		}
	})
	if ctx.Err() != nil {
		t.Fatal("it took too long")
	}
}

func TestAChangeOfTheSchemaUnderLoadIsNotNoticed(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database)})
	l := startLoad(t, s, 4)
	for i := range 5 {
		l.await(20)
		must(t, server, database, fmt.Sprintf("ALTER TABLE idemd.reservations ADD COLUMN later_%d int", i))
		must(t, server, database, fmt.Sprintf("ALTER TABLE idemd.reservations ALTER COLUMN owner TYPE varchar(%d)", 200+i))
	}
	l.await(20)
	l.end()
	l.verify()
	if l.unavailable.Load() > 0 {
		t.Errorf("%d callers were turned away", l.unavailable.Load())
	}
}

func TestTheHotStatementsAreIndexLookupsWhateverTheStatisticsSay(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	for _, statistics := range []string{"SELECT 1", "VACUUM ANALYZE idemd.reservations"} {
		must(t, server, database, statistics) // never analysed; then analysed while empty
		conn, err := pgx.Connect(t.Context(), server.DSN(database))
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{newStatements().hold, newStatements().read} {
			plan := explain(t, conn, statement, "ARRAY['t'], ARRAY['n'], ARRAY['k']")
			if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Hash") || strings.Contains(plan, "Merge") ||
				!strings.Contains(plan, "Index Scan using reservations_pkey") ||
				!strings.Contains(plan, "Index Cond: ((tenant = a.tenant) AND (namespace = a.namespace) AND (key = a.key))") {
				t.Errorf("after %q the plan is\n%s", statistics, plan)
			}
		}
		changed := explain(t, conn, newStatements().changed, "ARRAY['t'], ARRAY['n'], ARRAY['k'], ARRAY[1], ARRAY['(0,1)'::tid]")
		if strings.Contains(changed, "Seq Scan") || strings.Contains(changed, "Hash") || strings.Contains(changed, "Merge") ||
			!strings.Contains(changed, "Index Scan using reservations_pkey") || !strings.Contains(changed, "Tid Scan on reservations s") {
			t.Errorf("after %q the plan of looking for changes is\n%s", statistics, changed)
		}
		const completes = `ARRAY['t'], ARRAY['n'], ARRAY['k'], ARRAY['\x00'::bytea], ARRAY['\x00'::bytea], ARRAY[1]`
		complete := explain(t, conn, newStatements().plainComplete, completes)
		if ageing := explain(t, conn, newStatements().ageingComplete, completes+", ARRAY[1]"); nodes(ageing) != nodes(complete) {
			t.Errorf("after %q the plan of a Complete whose body goes first is\n%s", statistics, ageing)
		}
		if strings.Contains(complete, "Seq Scan") || strings.Contains(complete, "Hash") || strings.Contains(complete, "Merge") ||
			!strings.Contains(complete, "Index Scan using reservations_pkey") || !strings.Contains(complete, "Tid Scan on reservations r") {
			t.Errorf("after %q the plan of a plain Complete is\n%s", statistics, complete)
		}
		_ = conn.Close(t.Context())
	}
}

// nodes are what a plan does, without its numbers.
func nodes(plan string) string {
	return regexp.MustCompile(`\([^()]*width=\d+\)`).ReplaceAllString(plan, "")
}

// What operators list goes by an index, whatever the statistics say: among very many
// finished records, what is open costs what it finds.
func TestListsGoByAnIndexWhateverTheStatisticsSay(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, "ALTER TABLE idemd.reservations SET (autovacuum_enabled = false)")
	must(t, server, database, `INSERT INTO idemd.reservations (tenant, namespace, key, version, fence, retention, reserved_at, lease_expires_at, lease_cap_at,
    attempts_allowed, on_lapse, scheme, digest, token, owner, policy_version, state, finished_at, expires_at)
SELECT 'acme', 'payments', 'k-' || g, 1, 1, 1000000, 1, 1, 1, 20, 1, 's', '', '', 'o', '', CASE g % 5000 WHEN 0 THEN 1 ELSE 2 END,
    CASE g % 5000 WHEN 0 THEN NULL ELSE 1 END, CASE g % 5000 WHEN 0 THEN NULL ELSE 1 END FROM generate_series(1, 50000) AS g`)
	conn, err := pgx.Connect(t.Context(), server.DSN(database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, statistics := range []string{"SELECT 1", "ANALYZE idemd.reservations"} {
		must(t, server, database, statistics) // never analysed; then analysed
		for _, s := range []span{
			{}, {tenant: "acme"}, {tenant: "acme", namespace: "payments"}, {tenant: "acme", namespace: "payments", prefix: "k-4"}, {namespace: "payments"},
		} {
			for _, s.openOnly = range []bool{false, true} {
				index := "Index Scan using reservations_pkey"
				if s.openOnly {
					index = "Index Scan using reservations_open"
				}
				plan := explain(t, conn, s.statement(), "'acme', 'payments', 'k-2', 'acme', 'payments', 'k-4', 1000")
				if !strings.Contains(plan, index) || strings.Contains(plan, "Sort") || strings.Contains(plan, "  Filter:") {
					t.Errorf("after %q the plan of %+v is\n%s", statistics, s, plan)
				}
			}
		}
	}
}

// explain shows the plan in force within a transaction of the store.
func explain(t *testing.T, conn *pgx.Conn, statement, arguments string) string {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), newStatements().settings, "100", "1000", "1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "PREPARE hot AS "+statement); err != nil {
		t.Fatal(err)
	}
	defer conn.Exec(t.Context(), "DEALLOCATE hot")
	rows, err := tx.Query(t.Context(), "EXPLAIN EXECUTE hot ("+arguments+")", pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

func TestAnErrorOfTheDriverReachesNeitherCallersNorLogsWithKeys(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	var log strings.Builder
	s, err := Open(t.Context(), Options{DSN: server.DSN(database), Logger: textLogger(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	must(t, server, database, "ALTER TABLE idemd.reservations ADD CONSTRAINT no CHECK (key <> 'secret-key')")
	outcome := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At("secret-key"), 1)})[0]
	if err, refused := outcome.(*reservation.Error); !refused || err.Message != store.Unavailable().Message {
		t.Errorf("the caller is answered %v", outcome)
	}
	if !strings.Contains(log.String(), "23514") || strings.Contains(log.String(), "secret-key") {
		t.Errorf("the log says %q", log.String())
	}
}

func TestARowThatCanNotBeDecodedIsAnsweredAsUnreadable(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database)})
	for i, damage := range []string{
		"state = 0", "state = 77", "on_lapse = 9", "told = -1", "attempt = 0", `token = '\x00'`, `spent = '\x0102'`,
		`result = '\xff'`, `result = ''`, `history = '\x01ff'`, "expires_at = 5",
	} {
		damaged, sound := storetest.At(fmt.Sprint("damaged-", i)), storetest.At(fmt.Sprint("sound-", i))
		settle(t, s, storetest.Reserve(damaged, 1))
		must(t, server, database, fmt.Sprintf("UPDATE idemd.reservations SET %s WHERE key = '%s'", damage, damaged.Key))
		before := must(t, server, database, fmt.Sprintf("SELECT r::text FROM idemd.reservations AS r WHERE key = '%s'", damaged.Key))
		outcomes := s.Apply(t.Context(), []reservation.Command{storetest.Reserve(damaged, 1), storetest.Reserve(sound, 1)})
		if err, refused := outcomes[0].(*reservation.Error); !refused || err.Reason != reservation.RecordUnreadable {
			t.Errorf("%s: answered %T %v", damage, outcomes[0], outcomes[0])
		}
		if _, granted := outcomes[1].(*reservation.Owned); !granted {
			t.Errorf("%s: the one beside it is answered %T", damage, outcomes[1])
		}
		after := must(t, server, database, fmt.Sprintf("SELECT r::text FROM idemd.reservations AS r WHERE key = '%s'", damaged.Key))
		if before[0][0] != after[0][0] {
			t.Errorf("%s: the row was changed", damage)
		}
	}
}

func TestASweepPassesDamagedRowsAndKeepsThem(t *testing.T) {
	server, database := postgres.Server(t), postgres.database(t)
	must(t, server, database, fmt.Sprintf(frozen, storetest.Start))
	s := openStore(t, Options{DSN: server.DSN(database)})
	for i := range 30 {
		a := storetest.At(fmt.Sprintf("k-%02d", i))
		settle(t, s, storetest.Reserve(a, 1))
		settle(t, s, storetest.Complete(a, 1, ""))
	}
	must(t, server, database, `UPDATE idemd.reservations SET result = '\xff' WHERE key < 'k-25'`)
	must(t, server, database, fmt.Sprintf("UPDATE idemd.frozen_clock SET now = %d", storetest.Start.Add(storetest.Retention+time.Second)))
	swept, err := s.Sweep(t.Context(), 5)
	if err != nil || swept.Deleted != 5 || swept.More {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if rows := must(t, server, database, "SELECT count(*) FROM idemd.reservations"); rows[0][0] != "25" {
		t.Errorf("%s rows are left, 25 are damaged", rows[0][0])
	}
}

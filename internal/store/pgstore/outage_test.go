package pgstore

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// ownServer starts a server that the test may stop, with a store on it.
func ownServer(t *testing.T, options Options) (*pgtest.Server, *Store) {
	t.Helper()
	server := pgtest.Start(t)
	options.DSN = server.DSN(server.Database(t, ""))
	options.Migrate = true
	return server, openStore(t, options)
}

func TestAStoppedDatabaseIsToldWithARetryHintAndResumedByItself(t *testing.T) {
	server, s := ownServer(t, Options{})
	l := startLoad(t, s, 4)
	l.await(50)
	server.Stop()
	if hint := l.awaitRefusal(); hint <= 0 {
		t.Errorf("no hint when to retry")
	}
	if err := s.Ping(t.Context()); err == nil {
		t.Errorf("Ping says that a stopped database answers")
	}
	start(t, server)
	l.await(50)
	l.end()
	l.verify()
}

func TestAfterACrashOfTheDatabaseEveryAnsweredTransitionIsThere(t *testing.T) {
	server, s := ownServer(t, Options{})
	l := startLoad(t, s, 4)
	for range 3 {
		l.await(50)
		server.Kill()
		l.awaitRefusal()
		start(t, server)
	}
	l.await(50)
	l.end()
	l.verify()
}

func TestImpatientCallersDoNotPileUpInASlowDatabase(t *testing.T) {
	const conns, callers = 3, 5000
	server, database := postgres.Server(t), postgres.database(t)
	s := openStore(t, Options{DSN: server.DSN(database), MaxConns: conns, LockTimeout: patience})
	together(50, func(i int) { settle(t, s, storetest.Reserve(storetest.At(strconv.Itoa(i)), 1)) })
	before := backends(t, server, database)

	release := holdTable(t, server.DSN(database))
	together(callers, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		outcome := s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At(strconv.Itoa(i)), 1)})[0]
		if !unavailable(outcome) {
			t.Errorf("a database that is held up answered %T", outcome)
		}
	})
	during := backends(t, server, database)
	release()
	if len(during) > conns+sideConns {
		t.Errorf("%d backends, at most %d are allowed", len(during), conns+sideConns)
	}
	together(50, func(i int) { settle(t, s, storetest.Reserve(storetest.At(fmt.Sprint("after-", i)), 1)) })
	for pid := range backends(t, server, database) {
		if !before[pid] {
			t.Errorf("backend %s was started because callers gave up", pid)
		}
	}
}

// backends are the processes that serve a store.
func backends(t *testing.T, server *pgtest.Server, database string) map[string]bool {
	t.Helper()
	pids := make(map[string]bool)
	for _, row := range must(t, server, "postgres", fmt.Sprintf(
		"SELECT pid FROM pg_stat_activity WHERE datname = '%s' AND application_name = 'idemd'", database)) {
		pids[row[0]] = true
	}
	return pids
}

func holdTable(t *testing.T, dsn string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(context.Background(), "BEGIN; LOCK TABLE idemd.reservations IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = conn.Close(context.Background()) }
}

func TestAFrozenDatabaseIsToldWithinTheCallersTime(t *testing.T) {
	server, s := ownServer(t, Options{MaxConns: 2})
	settle(t, s, storetest.Reserve(storetest.At("warm"), 1))
	server.Pause()
	together(20, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		if outcome := s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At("frozen"), i)})[0]; !unavailable(outcome) {
			t.Errorf("a frozen database answered %T", outcome)
		}
		if _, err := s.Get(ctx, store.Want(storetest.At("frozen"))); err == nil {
			t.Errorf("a frozen database answered Get")
		}
	})
	server.Resume()
	settle(t, s, storetest.Reserve(storetest.At("after"), 1))
}

func TestClosingDoesNotWaitForAFrozenDatabase(t *testing.T) {
	server, s := ownServer(t, Options{})
	settle(t, s, storetest.Reserve(storetest.At("warm"), 1))
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At("k"), 1)})
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
	case <-time.After(3 * closeLimit):
		t.Fatal("Close waits for an answer that does not come")
	}
}

func start(t testing.TB, server *pgtest.Server) {
	t.Helper()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
}

package pgstore

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/pgtest"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// serverConns is how many connections the pooler keeps to a database: far fewer than
// its clients have to it.
const serverConns = 3

// pooler starts a PgBouncer in transaction mode before the shared server and returns
// how a database is reached through it, without prepared statements.
func pooler(t *testing.T) (way func(*pgtest.Server, string) string) {
	t.Helper()
	program := findPooler(t)
	host, port, err := net.SplitHostPort(postgres.Server(t).Address())
	if err != nil {
		t.Fatal(err)
	}
	listen := freeAddress(t)
	_, listenPort, _ := net.SplitHostPort(listen)
	dir := t.TempDir()
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, host, port, listenPort, serverConns)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var args []string
	if os.Getuid() == 0 { // it refuses to be root, and reads its configuration as who it becomes
		for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		args = append(args, "-u", humble(t))
	}
	start := exec.Command(program, append(args, config)...)
	start.Stdout, start.Stderr = t.Output(), t.Output()
	if err := start.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = start.Process.Kill()
		_ = start.Wait()
	})
	awaitListening(t, listen)
	return func(_ *pgtest.Server, database string) string {
		return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&default_query_exec_mode=exec", listen, database)
	}
}

// findPooler finds PgBouncer. Whoever has none is told; CI must have it.
func findPooler(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("pgbouncer is not installed")
	}
	t.Skip("pgbouncer is not installed")
	return ""
}

// humble is an account without rights.
func humble(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if _, err := user.Lookup(name); err == nil {
			return name
		}
	}
	t.Skip("there is neither a user postgres nor nobody for pgbouncer to run as")
	return ""
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func awaitListening(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatal("pgbouncer does not answer")
}

func TestConformanceThroughATransactionPooler(t *testing.T) {
	way := pooler(t)
	storetest.Run(t, func(t testing.TB) *storetest.Harness { return openThrough(t, way) })
}

// Two daemons with many more connections than the pooler has, beneath sweeps, from an
// empty database on.
func TestManyCallersShareATransactionPooler(t *testing.T) {
	way := pooler(t)
	server := postgres.Server(t)
	dsn := way(server, server.Database(t, ""))
	if err := Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	daemons := [2]*Store{openStore(t, Options{DSN: dsn, MaxConns: 10}), openStore(t, Options{DSN: dsn, MaxConns: 10})}
	together(52, func(i int) {
		s := daemons[i%2]
		for round := range 10 {
			if i >= 50 {
				if _, err := s.Sweep(context.Background(), 10); err != nil {
					t.Errorf("Sweep: %v", err)
				}
				continue
			}
			a := storetest.At(fmt.Sprint("pooled-", i, "-", round))
			if outcome := settle(t, s, storetest.Reserve(a, i)); !isOwned(outcome) {
				t.Errorf("%v is answered %T %v", a, outcome, outcome)
			}
			settle(t, s, storetest.Complete(a, i, "done"))
			if outcome := settle(t, daemons[1-i%2], storetest.Reserve(a, -1)); !isReplay(outcome) {
				t.Errorf("%v is answered %T %v by the other daemon", a, outcome, outcome)
			}
		}
	})
}

func isOwned(outcome reservation.Outcome) bool {
	_, is := outcome.(*reservation.Owned)
	return is
}

func isReplay(outcome reservation.Outcome) bool {
	_, is := outcome.(*reservation.Replay)
	return is
}

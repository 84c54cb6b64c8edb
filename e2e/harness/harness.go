package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/examples/charge/child"
	"github.com/idemd/idemd/internal/pgtest"
)

// Patience bounds what a test waits for.
const Patience = 60 * time.Second

// House is what the tests of a package share: the program, built once, and one
// PostgreSQL server. Use:
//
//	var house harness.House
//
//	func TestMain(m *testing.M) { os.Exit(house.Run(m)) }
type House struct {
	// Root is the repository's, seen from the tests. Default "../".
	Root string
	// Postgres is the shared server. Tests must not stop, kill or pause it.
	Postgres pgtest.Shared

	dir   string
	built map[string]*program
	mu    sync.Mutex
}

type program struct {
	once sync.Once
	path string
	err  error
}

// Run runs the tests and removes what they have shared.
func (h *House) Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "idemd-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	h.dir, h.built = dir, map[string]*program{}
	return h.Postgres.Run(m)
}

// Idemd is the path of the program, built without the race detector, as people run it.
func (h *House) Idemd(t testing.TB) string {
	t.Helper()
	root := h.Root
	if root == "" {
		root = "../"
	}
	return h.Build(t, root, "./cmd/idemd")
}

// Build builds a program of this repository once; dir is the root of its module, seen
// from the test.
func (h *House) Build(t testing.TB, dir, pkg string) string {
	t.Helper()
	h.mu.Lock()
	p := h.built[dir+pkg]
	if p == nil {
		p = &program{path: filepath.Join(h.dir, fmt.Sprint(len(h.built)))}
		h.built[dir+pkg] = p
	}
	h.mu.Unlock()
	p.once.Do(func() {
		build := exec.Command("go", "build", "-o", p.path, pkg)
		build.Dir = dir
		if out, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

// Store is a store for daemons to run on.
type Store struct {
	Name string
	// Flags start a daemon on one and the same store, however often they are used.
	Flags []string
	// Shared: several daemons may run on it at once.
	Shared bool
}

// Stores are an empty store of each kind.
func (h *House) Stores(t testing.TB) []Store {
	t.Helper()
	return []Store{h.Embedded(t), h.PostgreSQL(t)}
}

// Embedded is an empty embedded store.
func (h *House) Embedded(t testing.TB) Store {
	return Store{Name: "embedded", Flags: []string{"--data-dir", filepath.Join(t.TempDir(), "data")}}
}

// PostgreSQL is an empty database on the shared server.
func (h *House) PostgreSQL(t testing.TB) Store {
	t.Helper()
	server := h.Postgres.Server(t)
	return OnServer(server.DSN(server.Database(t, "")))
}

// OnServer is the store in the database with this connection string.
func OnServer(dsn string) Store {
	return Store{Name: "postgres", Flags: []string{"--postgres", dsn}, Shared: true}
}

// EachStore runs a test on an empty store of each kind.
func (h *House) EachStore(t *testing.T, test func(t *testing.T, s Store)) {
	t.Helper()
	for _, s := range h.Stores(t) {
		t.Run(s.Name, func(t *testing.T) { test(t, s) })
	}
}

// Serve starts a daemon on a store; it is killed when the test ends.
func (h *House) Serve(t testing.TB, s Store) *child.Daemon {
	t.Helper()
	d, err := child.Start(h.Idemd(t), s.Flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.Log())
		}
		d.Kill()
	})
	return d
}

// Restart starts a killed daemon again.
func Restart(t testing.TB, d *child.Daemon) {
	t.Helper()
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
}

// Dial connects to a daemon or a proxy until the test ends.
func Dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient(addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TCP starts a proxy in front of an address until the test ends.
func TCP(t testing.TB, addr string) *fault.TCP {
	t.Helper()
	p, err := fault.NewTCP(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// GRPC starts a proxy in front of an address until the test ends.
func GRPC(t testing.TB, addr string) *fault.GRPC {
	t.Helper()
	p, err := fault.NewGRPC(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Bounded is a context that ends when the test's patience is over.
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), Patience, errors.New("the test's patience is over"))
	t.Cleanup(cancel)
	return ctx
}

// Until waits until a condition holds.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(Patience); !holds(); {
		if time.Now().After(limit) {
			t.Fatalf("waited %v for %s", Patience, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Await waits until a channel is closed or sends.
func Await[T any](t testing.TB, what string, signal <-chan T) T {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case v := <-signal:
		return v
	case <-limit.C:
		t.Fatalf("waited %v for %s", Patience, what)
		panic("unreachable")
	}
}

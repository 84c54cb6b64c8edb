package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/examples/charge/child"
)

// traffic is many callers of a fleet of daemons, who follow the client's rules and no
// others. Each key is wanted by two of them.
type traffic struct {
	t       *testing.T
	fleet   *manual.Resolver
	client  *idem.Client
	stop    chan struct{}
	callers sync.WaitGroup
	next    atomic.Int64
	done    atomic.Int64
	effects sync.Map // key → *atomic.Int32
}

// startTraffic lets callers loose on the daemons.
func startTraffic(t *testing.T, callers int, daemons ...*child.Daemon) *traffic {
	t.Helper()
	l := &traffic{t: t, fleet: manual.NewBuilderWithScheme("fleet"), stop: make(chan struct{})}
	l.fleet.InitialState(stateOf(daemons))
	conn, err := grpc.NewClient("fleet:///idemd", append(idem.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(l.fleet),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l.client = idem.New(conn, idem.Options{Tenant: "acme"})
	for range callers {
		l.callers.Go(l.call)
	}
	return l
}

func stateOf(daemons []*child.Daemon) (state resolver.State) {
	for _, d := range daemons {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: d.GRPC}}})
	}
	return state
}

// now tells the clients which daemons there are, as a headless service does.
func (l *traffic) now(daemons ...*child.Daemon) { l.fleet.UpdateState(stateOf(daemons)) }

func (l *traffic) call() {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		key := fmt.Sprint("order-", l.next.Add(1)/2)
		op := idem.Operation{Key: key, Fingerprint: idem.SHA256("order-v1", []byte(key))}
		answer, err := l.client.Do(context.Background(), op, func(context.Context, *idem.Grant) (*idem.Result, error) {
			n, _ := l.effects.LoadOrStore(key, new(atomic.Int32))
			n.(*atomic.Int32).Add(1)
			return &idem.Result{Status: 201, Body: []byte(key)}, nil
		})
		if err != nil || string(answer.Result.GetBody()) != key {
			l.t.Errorf("%s: answered %v, %v", key, answer, err)
		}
		l.done.Add(1)
	}
}

// await lets n more operations be answered.
func (l *traffic) await(n int64) {
	l.t.Helper()
	until := l.done.Load() + n
	harness.Until(l.t, "more answers", func() bool { return l.done.Load() >= until })
}

// end stops the callers, and demands that each effect happened once.
func (l *traffic) end() {
	l.t.Helper()
	close(l.stop)
	l.callers.Wait()
	keys := 0
	l.effects.Range(func(key, n any) bool {
		keys++
		if n := n.(*atomic.Int32).Load(); n != 1 {
			l.t.Errorf("the effect of %v happened %d times", key, n)
		}
		return true
	})
	l.t.Logf("%d operations, %d effects", l.done.Load(), keys)
}

func TestARollingRestartUnderLoadIsNoConcernOfTheCallers(t *testing.T) {
	s := house.PostgreSQL(t)
	daemons := []*child.Daemon{house.Serve(t, s), house.Serve(t, s)}
	l := startTraffic(t, 256, daemons...)
	for range 2 {
		for _, d := range daemons {
			l.await(1000)
			if err := d.Stop(); err != nil {
				t.Errorf("a drained daemon: %v", err)
			}
			harness.Restart(t, d)
		}
	}
	l.await(1000)
	l.end()
}

// While a deployment goes one daemon at a time, two versions work on one schema.
func TestADeploymentOverAnOlderSchemaIsNoConcernOfTheCallers(t *testing.T) {
	s := house.PostgreSQL(t)
	old := lastSchemasProgram(t)
	before := []*child.Daemon{serveProgram(t, old, s), serveProgram(t, old, s)}
	l := startTraffic(t, 64, before...)
	l.await(500)
	var after []*child.Daemon
	for _, d := range before {
		after = append(after, house.Serve(t, s)) // the first one migrates, under load
		l.now(append(after, before...)...)
		l.await(500)
		l.now(append(after, before[len(after):]...)...)
		if err := d.Stop(); err != nil {
			t.Errorf("a drained daemon: %v", err)
		}
		l.await(500)
	}
	l.end()
}

// lastSchemasCommit is the last one before the schema's version 2.
const lastSchemasCommit = "9113be7f5588"

// lastSchemasProgram builds the daemon of that commit from this repository's history.
func lastSchemasProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	run := func(within, name string, arguments ...string) error {
		command := exec.Command(name, arguments...)
		command.Dir = within
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %v: %w\n%s", name, arguments, err, out)
		}
		return nil
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(root, "git", "worktree", "list"); err != nil && os.Getenv("CI") == "" {
		t.Skip("this is no clone: the program of the last schema can't be built")
	}
	program := filepath.Join(dir, "idemd")
	if err := errors.Join(
		run(dir, "git", "clone", "--quiet", "--no-checkout", "--shared", root, source),
		run(source, "git", "checkout", "--quiet", lastSchemasCommit),
		run(source, "go", "build", "-o", program, "./cmd/idemd"),
	); err != nil {
		t.Fatal(err)
	}
	return program
}

func serveProgram(t *testing.T, program string, s harness.Store) *child.Daemon {
	t.Helper()
	d, err := child.Start(program, s.Flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

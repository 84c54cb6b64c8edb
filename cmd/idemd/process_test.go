package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// patience bounds what a test waits for.
const patience = 60 * time.Second

// process is a daemon that runs as a process of its own.
type process struct {
	cmd        *exec.Cmd
	grpc, http string
	exited     chan struct{}
	code       int
	log        *lockedLog
}

type lockedLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *lockedLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// backend is a store for daemons to run on.
type backend struct {
	name string
	// flags start a daemon on one and the same store, however often they are used.
	flags []string
	// shared: several daemons may run on it at once.
	shared bool
}

func backends(t *testing.T) []backend {
	t.Helper()
	database := postgres.Server(t).DSN(postgres.Server(t).Database(t, ""))
	return []backend{
		{name: "embedded", flags: []string{"--data-dir", filepath.Join(t.TempDir(), "data")}},
		{name: "postgres", flags: []string{"--postgres", database}, shared: true},
	}
}

// spawn runs idemd as a child; it is killed when the test ends at the latest.
func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{exited: make(chan struct{}), log: &lockedLog{}}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(executable, args...)
	p.cmd.Env = append(os.Environ(), childVariable+"=1")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go p.read(stderr, ready)
	t.Cleanup(p.kill)
	if args[0] != "serve" {
		return p
	}
	select {
	case <-ready:
	case <-p.exited:
		t.Fatalf("the daemon ended with %d:\n%s", p.code, p.log)
	case <-time.After(patience):
		t.Fatalf("the daemon does not answer:\n%s", p.log)
	}
	return p
}

// serve starts a daemon on free ports.
func serve(t *testing.T, flags ...string) *process {
	t.Helper()
	return spawn(t, append([]string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, flags...)...)
}

// read follows the child's log; ready is closed when it says where it answers.
func (p *process) read(stderr io.Reader, ready chan struct{}) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.log.add(lines.Text())
		var entry struct{ Msg, Grpc, HTTP string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "idemd answers" {
			p.grpc, p.http = entry.Grpc, entry.HTTP
			close(ready)
		}
	}
	_ = p.cmd.Wait()
	p.code = p.cmd.ProcessState.ExitCode()
	close(p.exited)
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (p *process) wait(t *testing.T, most time.Duration) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(most):
		t.Fatalf("the process has not ended within %v:\n%s", most, p.log)
	}
	return p.code
}

// client talks to a daemon.
type client struct {
	idemdv1.IdempotencyServiceClient
	operator idemdv1.OperatorServiceClient
	conn     *grpc.ClientConn
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{idemdv1.NewIdempotencyServiceClient(conn), idemdv1.NewOperatorServiceClient(conn), conn}
}

func randomToken() []byte {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	return token
}

func fingerprint() *idemdv1.Fingerprint {
	return &idemdv1.Fingerprint{Scheme: "test-v1", Digest: make([]byte, 32)}
}

func (c *client) reserve(ctx context.Context, key string, token []byte) (*idemdv1.ReserveResponse, error) {
	return c.Reserve(ctx, &idemdv1.ReserveRequest{Tenant: "acme", Key: key, OwnerToken: token, Fingerprint: fingerprint()})
}

func (c *client) complete(ctx context.Context, key string, token []byte, body string) error {
	_, err := c.Complete(ctx, &idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: token, Result: &idemdv1.Result{Body: []byte(body)}})
	return err
}

// command runs idemd as a person would and returns its exit code and output.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = run(args, streams{strings.NewReader(""), &out, &errs})
	return code, out.String(), errs.String()
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("the test's patience is over"))
	t.Cleanup(cancel)
	return ctx
}

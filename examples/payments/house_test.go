package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/idemd/idemd/examples/payments/bank"
)

// testPatience bounds what a test waits for.
const testPatience = 90 * time.Second

// built is where TestMain has put the programs, as people run them: without the race
// detector.
var built string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "payments-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = dir
	for _, program := range []struct{ name, module, pkg string }{{"idemd", "../..", "./cmd/idemd"}, {"payments", ".", "."}} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program.name), program.pkg)
		build.Dir = program.module
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", program.pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

// running is a house of real processes.
type running struct {
	front, bank string
	log         *lines
}

// start starts a house. When the test ends it is interrupted, and has to end well.
func start(t *testing.T) *running {
	t.Helper()
	house := &running{log: &lines{}}
	cmd := exec.Command(filepath.Join(built, "payments"), "--idemd", filepath.Join(built, "idemd"), "--listen", "127.0.0.1:0")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, house.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		limit := time.AfterFunc(testPatience, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			t.Errorf("the house ends with: %v", err)
		}
		limit.Stop()
		_ = out.Close()
		if t.Failed() {
			t.Logf("the house's log:\n%s", house.log)
		}
	})
	said := &strings.Builder{}
	for buffer := make([]byte, 4096); ; {
		n, err := out.Read(buffer)
		said.Write(buffer[:n])
		if match := regexp.MustCompile(`export FRONT=(\S+) BANK=(\S+)\n`).FindStringSubmatch(said.String()); match != nil {
			house.front, house.bank = match[1], match[2]
			return house
		}
		if err != nil {
			t.Fatalf("the house said %q: %v", said, err)
		}
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all of it.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// pid is the number of the process that was started last under this name.
func (r *running) pid(t *testing.T, name string) int {
	t.Helper()
	return r.restarted(t, name, 0)
}

// restarted waits until a process runs under this name that is another one than before.
func (r *running) restarted(t *testing.T, name string, before int) int {
	t.Helper()
	for limit := time.Now().Add(testPatience); time.Now().Before(limit); {
		if pid := r.lastPID(name); pid != 0 && pid != before {
			return pid
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatalf("%s was not started", name)
	return 0
}

func (r *running) lastPID(name string) (pid int) {
	for line := range strings.Lines(r.log.String()) {
		var entry struct {
			Msg, Process string
			PID          int
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "started" && entry.Process == name {
			pid = entry.PID
		}
	}
	return pid
}

// answer is an HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request as a user, under a key.
func (r *running) send(t *testing.T, method, path, user, key, body string) answer {
	t.Helper()
	got, err := r.try(method, path, user, key, body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func (r *running) try(method, path, user, key, body string) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), testPatience, errors.New("the test's patience is over"))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.front+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.GetBody = nil // net/http repeats nothing by itself
	request.Header.Set("X-Session", user)
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// insist sends a payment again and again, with its key, until it is answered for good.
func (r *running) insist(key, body string) (answer, error) {
	for limit := time.Now().Add(testPatience); ; {
		got, err := r.try(http.MethodPost, "/payments", "alice", key, body)
		if err == nil && got.status != http.StatusAccepted && got.status != http.StatusServiceUnavailable {
			return got, nil
		}
		if time.Now().After(limit) {
			return got, fmt.Errorf("no answer for good: %d %s, %w", got.status, got.body, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// bookings are the lines of the bank's statement for an order.
func (r *running) bookings(t *testing.T, order string) (lines []bank.Booking) {
	t.Helper()
	response, err := http.Get(r.bank + "/bookings?order=" + order)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&lines); err != nil {
		t.Fatal(err)
	}
	return lines
}

func payFor(order, card string) string {
	return fmt.Sprintf(`{"order": %q, "cents": 1999, "card": %q}`, order, card)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// waiting is what it is like to wait for others, at two daemons on one PostgreSQL.
type waiting struct {
	Waiters int `json:"waiters"`
	Keys    int `json:"keys"`
	// From the sending of Complete to the answer of those who waited for it.
	First time.Duration `json:"first_ns"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Last  time.Duration `json:"last_ns"`
	// Shares of one core while nothing happens but waiting, less what the same processes
	// use when nobody waits.
	Database float64 `json:"database_core"`
	Daemons  float64 `json:"daemons_core"`
	// Bytes of the daemons' memory that one open wait takes.
	Bytes int64 `json:"bytes_per_wait"`
}

// How long waiting alone is watched, and how fast keys are completed.
const (
	watchFor           = 4 * time.Second
	completesPerSecond = 2500
	waitLease          = 5 * time.Minute
)

// measureWaiting has many wait for one key, then for as many keys.
func (b *bench) measureWaiting(ctx context.Context) (all []waiting, err error) {
	other, err := startChild(ctx, postgres, "", dsnVariable+"="+b.dsn("idemd"))
	if err != nil {
		return nil, err
	}
	defer other.stop()
	for _, keys := range []int{1, b.plan.Waiters} {
		h := hall{bench: b, daemons: []*child{b.children[postgres], other}, keys: keys}
		w, err := h.measure(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d waiters for %d keys: %w", b.plan.Waiters, keys, err)
		}
		_, _ = fmt.Fprintf(os.Stderr, "%d waiters for %d keys: %+v\n", w.Waiters, w.Keys, w)
		all = append(all, w)
	}
	return all, nil
}

// hall is where all wait.
type hall struct {
	bench   *bench
	daemons []*child
	clients []*grpcClient
	keys    int
	prefix  string
	tokens  [][]byte // of the owner of each key

	completed []time.Time // when each key's Complete was sent
	answered  []time.Time // when each waiter heard
}

func (h *hall) key(i int) string { return h.prefix + strconv.Itoa(i) }

func (h *hall) measure(ctx context.Context) (waiting, error) {
	waiters := h.bench.plan.Waiters
	h.prefix = "wait-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	h.completed, h.answered, h.tokens = make([]time.Time, h.keys), make([]time.Time, waiters), make([][]byte, h.keys)
	for _, daemon := range h.daemons {
		c, err := dial(daemon.address, waiters/16, false)
		if err != nil {
			return waiting{}, err
		}
		defer c.close()
		h.clients = append(h.clients, c)
	}
	if err := h.reserveAll(ctx); err != nil {
		return waiting{}, err
	}
	if err := h.bench.settle(ctx); err != nil {
		return waiting{}, err
	}
	idle, err := h.watch(ctx)
	if err != nil {
		return waiting{}, err
	}
	memory := h.memory()
	ctx, cancel := context.WithTimeout(ctx, 48*time.Second)
	defer cancel()
	calls := make(chan error, waiters)
	for i := range waiters {
		go func() { calls <- h.wait(ctx, i) }()
	}
	if err := h.untilAllWait(ctx, calls); err != nil {
		return waiting{}, err
	}
	w := waiting{Waiters: waiters, Keys: h.keys, Bytes: (h.memory() - memory) / int64(waiters)}
	busy, err := h.watch(ctx)
	if err != nil {
		return waiting{}, err
	}
	w.Database = max(0, busy.database-idle.database).Seconds() / watchFor.Seconds()
	w.Daemons = max(0, busy.server-idle.server).Seconds() / watchFor.Seconds()
	if err := h.completeAll(ctx); err != nil {
		return waiting{}, err
	}
	for range waiters {
		if err := <-calls; err != nil {
			return waiting{}, err
		}
	}
	h.summarise(&w)
	return w, nil
}

// stub is a connection to the daemon of a number; numbers take turns.
func (h *hall) stub(i int) stub {
	c := h.clients[i%len(h.clients)]
	return c.stubs[i/len(h.clients)%len(c.stubs)]
}

func (h *hall) request(i int, token []byte) *idemdv1.ReserveRequest {
	return &idemdv1.ReserveRequest{
		Tenant: tenant, Namespace: namespace, Key: h.key(i), Fingerprint: h.clients[0].fingerprint, OwnerToken: token,
		Owner: owner, PolicyVersion: policyVersion, Lease: durationpb.New(waitLease),
	}
}

// reserveAll has every key owned.
func (h *hall) reserveAll(ctx context.Context) error {
	return inParallel(h.keys, 0, func(i int) error {
		h.tokens[i] = []byte(fmt.Sprintf("owner-of-key-%016d", i))
		r, err := h.stub(i).Reserve(ctx, h.request(i, h.tokens[i]))
		if err == nil && r.GetOwned() == nil {
			err = fmt.Errorf("a fresh key was answered %v", r)
		}
		return err
	})
}

func (h *hall) wait(ctx context.Context, i int) error {
	r := h.request(i%h.keys, []byte(fmt.Sprintf("a-waiter-number-%08d", i)))
	r.Wait = durationpb.New(50 * time.Second)
	answer, err := h.stub(i).Reserve(ctx, r)
	h.answered[i] = time.Now()
	if err == nil && answer.GetReplay() == nil {
		err = fmt.Errorf("who waited was answered %v", answer)
	}
	return err
}

func (h *hall) untilAllWait(ctx context.Context, calls chan error) error {
	for {
		n := 0
		for _, daemon := range h.daemons {
			at, err := metric(ctx, daemon.http, "idemd_waiters")
			if err != nil {
				return err
			}
			n += int(at)
		}
		if n == h.bench.plan.Waiters {
			return nil
		}
		select {
		case err := <-calls:
			return fmt.Errorf("somebody did not wait: %w", errors.Join(err, errors.New("answered early")))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// watch tells what database and daemons use while nothing is asked of them.
func (h *hall) watch(ctx context.Context) (usage, error) {
	if err := pause(ctx, time.Second); err != nil {
		return usage{}, err
	}
	before := h.usage()
	if err := pause(ctx, watchFor); err != nil {
		return usage{}, err
	}
	return h.usage().minus(before), nil
}

func (h *hall) usage() usage {
	u := usage{database: cpuOfAll(h.bench.database.Processes())}
	for _, daemon := range h.daemons {
		u.server += cpuOf(daemon.cmd.Process.Pid)
	}
	return u
}

// completeAll completes every key at the first daemon, at a steady pace: half of those who
// wait do so at the other.
func (h *hall) completeAll(ctx context.Context) error {
	return inParallel(h.keys, completesPerSecond, func(i int) error {
		h.completed[i] = time.Now()
		_, err := h.stub(i*len(h.clients)).Complete(ctx, &idemdv1.CompleteRequest{
			Tenant: tenant, Namespace: namespace, Key: h.key(i), OwnerToken: h.tokens[i], Result: h.clients[0].result,
		})
		return err
	})
}

func (h *hall) summarise(w *waiting) {
	took := make([]time.Duration, len(h.answered))
	for i, at := range h.answered {
		took[i] = at.Sub(h.completed[i%h.keys])
	}
	slices.Sort(took)
	w.First, w.P50, w.P99, w.Last = took[0], percentile(took, 50), percentile(took, 99), took[len(took)-1]
}

// memory is what the daemons have in memory, in bytes.
func (h *hall) memory() (sum int64) {
	for _, daemon := range h.daemons {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", daemon.cmd.Process.Pid))
		if err != nil {
			return 0
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		var kib int64
		_, _ = fmt.Sscan(rest, &kib)
		sum += kib << 10
	}
	return sum
}

// inParallel calls do for 0 to n-1, at most 256 at a time; perSecond starts them at a
// steady pace, zero = as fast as it goes.
func inParallel(n, perSecond int, do func(i int) error) error {
	slots, failed := make(chan struct{}, 256), make(chan error, n)
	var running sync.WaitGroup
	began := time.Now()
	for i := range n {
		if perSecond > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				failed <- err
			}
		})
	}
	running.Wait()
	close(failed)
	return <-failed
}

// metric reads one of a daemon's metrics without labels.
func metric(ctx context.Context, address, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, name+" "); is {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// waitingTable shows waiting, with its bars.
func (r *report) waitingTable(line func(format string, args ...any)) {
	if len(r.Waiting) == 0 {
		return
	}
	line("| waiting at two daemons on one PostgreSQL | first | p50 | p99 | last | of a core: database, daemons | memory a wait |")
	line("|---|--:|--:|--:|--:|--:|--:|")
	for _, w := range r.Waiting {
		line("| %d calls for %d keys | %s | %s | %s | %s | %.1f %%, %.1f %% | %.1f KiB |", w.Waiters, w.Keys,
			millis(w.First), millis(w.P50), millis(w.P99), millis(w.Last), 100*w.Database, 100*w.Daemons, float64(w.Bytes)/1024)
	}
	line("")
	for _, w := range r.Waiting {
		for _, bar := range w.bars() {
			line("- %d calls that wait for %d keys: %s: %s", w.Waiters, w.Keys, bar.rule, verdict(bar.holds))
		}
	}
	line("")
}

// limit is a bar that is no ratio.
type limit struct {
	rule  string
	holds bool
}

func (w waiting) bars() []limit {
	all := []limit{
		{"the last is answered within 1 s", w.Last <= time.Second},
		{"the database spends less than 5 % of a core on it", w.Database < 0.05},
		{"one takes at most 64 KiB of memory", w.Bytes <= 64<<10},
	}
	if w.Keys == 1 {
		all = append(all, limit{"the first is answered within 100 ms", w.First <= 100*time.Millisecond})
	}
	return all
}

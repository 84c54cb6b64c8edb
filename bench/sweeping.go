package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	crand "crypto/rand"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/pebblestore"
)

// sweeping is what callers feel while expired records are swept beneath them, in the first
// of a few cycles, in each of which as many records expire at once; and what the disk does
// over all of them.
type sweeping struct {
	Contender string `json:"contender"`
	Records   int    `json:"records"`
	// Rate is how many cycles a second are begun meanwhile, whether or not those before
	// are answered. Latencies count from when a cycle was due.
	Rate   float64   `json:"rate"`
	During latencies `json:"during"`
	After  latencies `json:"after"` // the same load, nothing to sweep
	// Refused cycles heard OVERLOADED: the machine could not keep up with the load.
	Refused int           `json:"refused"`
	Took    time.Duration `json:"took_ns"` // to sweep all, beneath the load
	Bytes   []int64       `json:"bytes"`   // on disk after each cycle
}

type latencies struct {
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

const (
	sweepCycles = 3
	sweepQuiet  = 15 * time.Second
	sweepMost   = 5 * time.Minute
	// vacuumMost bounds the wait for autovacuum, which comes once a minute.
	vacuumMost = 2 * time.Minute
)

// measureSweeping measures each of idemd's stores at half of the load that it takes.
func (b *bench) measureSweeping(ctx context.Context, r *report) (all []sweeping, err error) {
	for _, name := range []string{embedded, postgres} {
		if !b.needs(name) {
			continue
		}
		s := sweeping{Contender: name, Records: b.plan.Expired, Rate: r.best(name, slices.Max(b.plan.Callers)) / 2}
		for n := range sweepCycles {
			if err := b.sweepCycle(ctx, &s, n == 0); err != nil {
				return nil, fmt.Errorf("%s: sweeping %d records: %w", name, s.Records, err)
			}
			_, _ = fmt.Fprintf(os.Stderr, "%s, cycle %d: %+v\n", name, n+1, s)
		}
		all = append(all, s)
	}
	return all, nil
}

func (b *bench) sweepCycle(ctx context.Context, s *sweeping, loaded bool) error {
	if err := b.fillExpired(ctx, *s); err != nil {
		return err
	}
	daemon := b.children[s.Contender]
	before, err := metric(ctx, daemon.http, "idemd_swept_total")
	if err != nil {
		return err
	}
	swept := func() (int, error) {
		now, err := metric(ctx, daemon.http, "idemd_swept_total")
		return int(now - before), err
	}
	if loaded {
		err = b.sweepBeneath(ctx, s, daemon, swept)
	} else {
		_, _, err = untilSwept(ctx, swept, s.Records)
	}
	if err != nil {
		return err
	}
	bytes, err := b.bytes(ctx, s.Contender)
	s.Bytes = append(s.Bytes, bytes)
	return err
}

// sweepBeneath measures an open loop while it is swept beneath it, and afterwards.
func (b *bench) sweepBeneath(ctx context.Context, s *sweeping, daemon *child, swept func() (int, error)) error {
	client, err := dial(daemon.address, 1024, false)
	if err != nil {
		return err
	}
	defer client.close()
	load := openLoop(ctx, client, s.Rate)
	began, ended, err := untilSwept(ctx, swept, s.Records)
	err = errors.Join(err, pause(ctx, 3*time.Second))
	quiet := time.Now()
	err = errors.Join(err, pause(ctx, sweepQuiet))
	laps, refused, failed := load.stop()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	s.Took, s.Refused = ended.Sub(began), refused
	s.During, s.After = within(laps, window{began, ended}), within(laps, window{quiet, quiet.Add(sweepQuiet)})
	return nil
}

// untilSwept waits until some records, then all of them, are swept.
func untilSwept(ctx context.Context, swept func() (int, error), all int) (began, ended time.Time, err error) {
	for over := time.Now().Add(sweepMost); time.Now().Before(over); {
		n, err := swept()
		if err != nil {
			return began, ended, err
		}
		if n > all/100 && began.IsZero() {
			began = time.Now()
		}
		if n >= all {
			return began, time.Now(), nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return began, ended, err
		}
	}
	return began, ended, fmt.Errorf("it took longer than %v", sweepMost)
}

// fillExpired puts records into a store whose retention is over.
func (b *bench) fillExpired(ctx context.Context, s sweeping) error {
	if s.Contender == postgres {
		return b.fillDatabase(s.Records)
	}
	// Only one process may have the embedded store open.
	b.children[embedded].stop()
	dir := filepath.Join(b.dir, "store")
	if err := fillDirectory(ctx, dir, s.Records); err != nil {
		return err
	}
	daemon, err := startChild(ctx, embedded, "", dirVariable+"="+dir)
	b.children[embedded] = daemon
	return err
}

func (b *bench) fillDatabase(n int) error {
	_, err := b.database.Exec("idemd", `INSERT INTO idemd.reservations (tenant, namespace, key, version, fence, retention, reserved_at,
    lease_expires_at, lease_cap_at, attempts_allowed, on_lapse, scheme, digest, token, owner, policy_version, state, told, finished_at, expires_at)
SELECT 'acme', 'payments', 'order-' || replace(gen_random_uuid()::text, '-', ''), now, now, 1000000, now - 2000000, now + 28000000, now + 86398000000,
    20, 1, 'bench-v1', sha256(i::text::bytea), substring(sha256(i::text::bytea) FROM 1 FOR 16), 'checkout-7f9c', '2026-11', 2, 1,
    now - 1000000 - i, now - i FROM generate_series(1, `+strconv.Itoa(n)+`) AS i, idemd.clock() AS now`)
	return err
}

// fillDirectory reserves and completes with the shortest retention, which is over when
// the daemon is back.
func fillDirectory(ctx context.Context, dir string, n int) (err error) {
	s, err := pebblestore.Open(ctx, pebblestore.Options{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	random := rand.NewChaCha8(seed)
	for left := n; left > 0; left -= store.MaxBatch {
		var reserves, completes []reservation.Command
		for range min(left, store.MaxBatch) {
			op := freshOperation(random)
			a := reservation.Address{Tenant: tenant, Namespace: namespace, Key: op.key}
			reserves = append(reserves, &reservation.Reserve{
				Address: a, Fingerprint: reservation.Fingerprint{Scheme: "bench-v1", Digest: fingerprint()}, Token: op.token,
				Lease: lease, LeaseCap: reservation.DefaultLeaseCap, Retention: reservation.MinRetention,
				OnLapse: reservation.Hold, Attempts: reservation.DefaultAttempts, Owner: owner, PolicyVersion: policyVersion,
			})
			completes = append(completes, &reservation.Complete{Address: a, Token: op.token, Result: reservation.Result{Status: status}})
		}
		for _, outcome := range append(s.Apply(ctx, reserves), s.Apply(ctx, completes)...) {
			if refusal, refused := outcome.(*reservation.Error); refused {
				return refusal
			}
		}
	}
	return nil
}

// bytes is what a store takes on disk, once it had time to clean up.
func (b *bench) bytes(ctx context.Context, contender string) (sum int64, err error) {
	if err := pause(ctx, sweepQuiet); err != nil {
		return 0, err
	}
	if contender == postgres {
		for over := time.Now().Add(vacuumMost); time.Now().Before(over); {
			dead, err := b.number("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'reservations'")
			if err != nil || dead < int64(b.plan.Expired)/10 {
				break
			}
			if err := pause(ctx, time.Second); err != nil {
				return 0, err
			}
		}
		return b.number("SELECT pg_total_relation_size('idemd.reservations')")
	}
	err = filepath.WalkDir(filepath.Join(b.dir, "store"), func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // compacted away meanwhile
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum, err
}

func (b *bench) number(query string) (int64, error) {
	rows, err := b.database.Exec("idemd", query)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(rows[0][0], 10, 64)
}

// load is cycles that begin at a steady pace, however long those before take.
type load struct {
	stopping chan struct{}
	once     sync.Once
	running  sync.WaitGroup
	mu       sync.Mutex
	laps     []lap
	refused  int
	failed   error
}

// mostUnderWay bounds the cycles of an open loop that wait for their answers.
const mostUnderWay = 20_000

func openLoop(ctx context.Context, c client, perSecond float64) *load {
	l := &load{stopping: make(chan struct{})}
	l.running.Go(func() { l.run(ctx, c, perSecond) })
	return l
}

func (l *load) run(ctx context.Context, c client, perSecond float64) {
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	random := rand.NewChaCha8(seed)
	slots := make(chan struct{}, mostUnderWay)
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-l.stopping:
				return
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-l.stopping:
			return
		case slots <- struct{}{}:
		}
		op := freshOperation(random)
		l.running.Go(func() {
			defer func() { <-slots }()
			err := c.cycle(ctx, op)
			ended := time.Now()
			l.mu.Lock()
			defer l.mu.Unlock()
			if code := grpcstatus.Code(err); code == codes.Unavailable || code == codes.ResourceExhausted {
				l.refused++
				return
			}
			if err != nil {
				l.failed = err
				return
			}
			l.laps = append(l.laps, lap{ended, ended.Sub(due)})
		})
	}
}

// stop ends the load and returns its cycles, and how many were refused.
func (l *load) stop() (laps []lap, refused int, err error) {
	l.once.Do(func() { close(l.stopping) })
	l.running.Wait()
	return l.laps, l.refused, l.failed
}

func within(laps []lap, w window) latencies {
	var took []time.Duration
	for _, l := range laps {
		if w.holds(l) {
			took = append(took, l.took)
		}
	}
	if len(took) == 0 {
		return latencies{}
	}
	slices.Sort(took)
	return latencies{P50: percentile(took, 50), P99: percentile(took, 99)}
}

// slower is how many times as long the slowest hundredth takes while it is swept.
func (s sweeping) slower() float64 { return ratio(s.During.P99.Seconds(), s.After.P99.Seconds()) }

// levelsOff tells whether the disk stops growing: the last cycle adds less than a quarter.
func (s sweeping) levelsOff() bool {
	last, before := s.Bytes[len(s.Bytes)-1], s.Bytes[len(s.Bytes)-2]
	return float64(last) <= 1.25*float64(before)
}

func (r *report) sweepingTable(line func(format string, args ...any)) {
	if len(r.Sweeping) == 0 {
		return
	}
	line("| sweeping beneath an open loop at half load | cycles/s | refused | records | swept in | p50, p99 meanwhile | p50, p99 afterwards | MiB on disk after each cycle |")
	line("|---|--:|--:|--:|--:|--:|--:|--:|")
	for _, s := range r.Sweeping {
		var sizes []string
		for _, n := range s.Bytes {
			sizes = append(sizes, strconv.FormatInt(n>>20, 10))
		}
		line("| %s | %.0f | %d | %d | %.0f s | %s, %s | %s, %s | %s |", s.Contender, s.Rate, s.Refused, s.Records, s.Took.Seconds(),
			millis(s.During.P50), millis(s.During.P99), millis(s.After.P50), millis(s.After.P99), strings.Join(sizes, ", "))
	}
	line("")
	for _, s := range r.Sweeping {
		line("- %s: p99 while it is swept is %.2f × that without; the bar is 1.50: %s", s.Contender, s.slower(), verdict(s.slower() <= 1.5))
		line("- %s: the disk levels off over %d cycles: %s", s.Contender, len(s.Bytes), verdict(s.levelsOff()))
	}
	line("")
}

func verdict(holds bool) string {
	if holds {
		return "reached"
	}
	return "MISSED"
}

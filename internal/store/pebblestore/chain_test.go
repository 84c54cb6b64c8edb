package pebblestore

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// gateFS holds each fsync of the log while the gate is held.
type gateFS struct {
	vfs.FS
	gate  *sync.RWMutex
	syncs *atomic.Int64
}

func (g gateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := g.FS.Create(name, category)
	if err == nil && category == walCategory {
		file = gateFile{file, g}
	}
	return file, err
}

type gateFile struct {
	vfs.File
	fs gateFS
}

func (f gateFile) Sync() error     { return f.sync(f.File.Sync) }
func (f gateFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f gateFile) sync(do func() error) error {
	f.fs.gate.RLock()
	defer f.fs.gate.RUnlock()
	f.fs.syncs.Add(1)
	return do()
}

func newGate() gateFS {
	return gateFS{FS: vfs.NewMem(), gate: new(sync.RWMutex), syncs: new(atomic.Int64)}
}

// waitForWaiting waits until n calls wait for an fsync, and gives up when the test has
// failed or takes far too long.
func waitForWaiting(t *testing.T, s *Store, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); s.waiting.Load() < int64(n) && !t.Failed(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("only %d calls wait for an fsync, want %d", s.waiting.Load(), n)
		}
	}
}

// TestNothingIsToldBeforeItIsSynced holds the disk and asks in every way for what is
// not on it yet.
func TestNothingIsToldBeforeItIsSynced(t *testing.T) {
	ctx := context.Background()
	gate := newGate()
	s := mustOpen(t, Options{Dir: "data", FS: gate, Logger: quiet(t)})
	a := storetest.At("a")
	asks := []func(){
		func() { s.Apply(ctx, []reservation.Command{storetest.Reserve(a, 1)}) },
		func() { s.Apply(ctx, []reservation.Command{storetest.Reserve(a, 2)}) },
		func() { s.Apply(ctx, []reservation.Command{storetest.Lookup(a)}) },
		func() { _, _ = s.Get(ctx, store.Want(a)) },
		func() { _, _ = s.List(ctx, store.Query{Limit: 1}) },
		func() { _, _ = s.List(ctx, store.Query{Limit: 1, State: reservation.Processing}) },
		func() { _, _ = s.Audit(ctx, store.AuditQuery{Limit: 1}) },
		func() { _, _ = s.Stats(ctx) },
		func() { _, _ = s.Check(ctx) },
		func() { _, _ = s.Sweep(ctx, 10) },
	}
	gate.gate.Lock()
	var released atomic.Bool
	var calls sync.WaitGroup
	for i, ask := range asks {
		calls.Go(func() {
			ask()
			if !released.Load() {
				t.Errorf("call %d was answered before the fsync", i)
			}
		})
		waitForWaiting(t, s, i+1) // each sees what the ones before did
	}
	released.Store(true)
	gate.gate.Unlock()
	calls.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestBatchesDecideDuringTheFsyncOfEarlierOnes: they need not wait for each other.
func TestBatchesDecideDuringTheFsyncOfEarlierOnes(t *testing.T) {
	gate := newGate()
	s := mustOpen(t, Options{Dir: "data", FS: gate, Logger: quiet(t)})
	before := gate.syncs.Load()
	gate.gate.Lock()
	var calls sync.WaitGroup
	const batches = 50
	for n := range batches {
		calls.Go(func() {
			a := storetest.At(fmt.Sprint("key-", n))
			if _, owned := s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, n)})[0].(*reservation.Owned); !owned {
				t.Errorf("batch %d is not owned", n)
			}
		})
	}
	waitForWaiting(t, s, batches)
	gate.gate.Unlock()
	calls.Wait()
	// The first fsync takes what was there when it began, the next one all the rest.
	if syncs := gate.syncs.Load() - before; syncs > 3 {
		t.Errorf("%d batches took %d fsyncs", batches, syncs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestACallEndsWithItsContext also while the disk hangs, and is then told that its
// commands may or may not have been done.
func TestACallEndsWithItsContext(t *testing.T) {
	gate := newGate()
	s := mustOpen(t, Options{Dir: "data", FS: gate, Logger: quiet(t)})
	ctx, cancel := context.WithCancel(context.Background())
	a := storetest.At("a")
	gate.gate.Lock()
	answered := make(chan reservation.Outcome)
	go func() { answered <- s.Apply(ctx, []reservation.Command{storetest.Reserve(a, 1)})[0] }()
	waitForWaiting(t, s, 1)
	cancel()
	mustBeUnavailable(t, <-answered)
	mustBeUnavailable(t, s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At("late"), 1)})[0])
	gate.gate.Unlock()

	// The same command again finds what it did the first time.
	outcome := s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, 1)})[0]
	if owned, ok := outcome.(*reservation.Owned); !ok || owned.Attempt != 1 {
		t.Errorf("the command run again was answered %T %v", outcome, outcome)
	}
	snapshot, err := s.Get(context.Background(), store.Want(storetest.At("late")))
	if err != nil || snapshot.Found[0].Record != nil {
		t.Errorf("a call that came with its context over did something: %v, %v", snapshot, err)
	}
	mustBeWhole(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func mustBeUnavailable(t *testing.T, outcome reservation.Outcome) {
	t.Helper()
	if err, refused := outcome.(*reservation.Error); !refused || err.Reason != reservation.StoreUnavailable {
		t.Errorf("answered %T %v, want STORE_UNAVAILABLE", outcome, outcome)
	}
}

// TestEqualReservesAtOnceHaveOneOwner: a hundred callers, each with its own token.
func TestEqualReservesAtOnceHaveOneOwner(t *testing.T) {
	s := mustOpen(t, Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet(t)})
	for round := range 100 {
		a := storetest.At(fmt.Sprint("round-", round))
		var owners atomic.Int64
		var calls sync.WaitGroup
		for n := range 100 {
			calls.Go(func() {
				switch out := s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, n)})[0].(type) {
				case *reservation.Owned:
					owners.Add(1)
				case *reservation.InProgress:
				default:
					t.Errorf("answered %T %v", out, out)
				}
			})
		}
		calls.Wait()
		if owners.Load() != 1 {
			t.Fatalf("round %d has %d owners", round, owners.Load())
		}
	}
	mustBeWhole(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseWaitsForCallsAndRefusesLaterOnes closes a store under load.
func TestCloseWaitsForCallsAndRefusesLaterOnes(t *testing.T) {
	disk := vfs.NewMem()
	options := Options{Dir: "data", FS: disk, Logger: quiet(t)}
	s := mustOpen(t, options)
	l := &load{store: s, journal: newJournal(), seed: newSeed(t), refused: func(*reservation.Error) {}}
	ended := make(chan struct{})
	go func() {
		l.run(6)
		close(ended)
	}()
	l.journal.waitFor(100)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	mustRefuse(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	after := mustOpen(t, options)
	mustHoldAll(t, after, l.journal.copy())
	if err := after.Close(); err != nil {
		t.Error(err)
	}
}

// TestABatchLargerThanTheMemoryTableIsKeptWhole, over several commits.
func TestABatchLargerThanTheMemoryTableIsKeptWhole(t *testing.T) {
	const results = 20
	if results*reservation.MaxBodyBytes <= memTableBytes/2 {
		t.Fatal("the batch is too small")
	}
	options := Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet(t)}
	s := mustOpen(t, options)
	var reserves, completes []reservation.Command
	for n := range results {
		a := storetest.At(fmt.Sprint("large-", n))
		c := storetest.Complete(a, n, "")
		c.Result.Body = bytes.Repeat([]byte{byte(n)}, reservation.MaxBodyBytes)
		reserves, completes = append(reserves, storetest.Reserve(a, n)), append(completes, c, storetest.Lookup(a))
	}
	s.Apply(context.Background(), reserves)
	told := make(map[reservation.Address]*reservation.Record)
	for i, outcome := range s.Apply(context.Background(), completes) {
		if found, is := outcome.(*reservation.Found); is {
			told[completes[i].Target()] = found.Record
		}
	}
	if len(told) != results {
		t.Errorf("%d of %d results were taken", len(told), results)
	}
	mustHoldAll(t, s, told)
	mustClose(t, s)
	after := mustOpen(t, options)
	mustHoldAll(t, after, told)
	mustClose(t, after)
}

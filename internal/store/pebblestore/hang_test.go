package pebblestore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestAFullDiskRefusesTheOpening: what was replayed from the log finds no room. The store
// can be read all the same, and opens when there is room again.
func TestAFullDiskRefusesTheOpening(t *testing.T) {
	disk := filled(t, 3, 1000)
	full := &faulty{suffix: ".sst", kinds: []errorfs.OpKind{errorfs.OpCreate}, limit: always}
	options := silent(Options{Dir: "data", FS: errorfs.Wrap(disk, full)})
	full.on.Store(true)
	mustNotOpen(t, options, `"data"`, "make room", "no space left")
	full.on.Store(false) // what is left of the opening ends, and lets go

	for end := time.Now().Add(20 * time.Second); ; {
		s, err := Open(context.Background(), options)
		if err == nil {
			if held := stored(t, s); len(held) != 3 {
				t.Errorf("%d records, want 3", len(held))
			}
			mustClose(t, s)
			return
		}
		if !strings.Contains(err.Error(), "in use") || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestAFullDiskIsNoObstacleToReading: idemd check works on it.
func TestAFullDiskIsNoObstacleToReading(t *testing.T) {
	full := &faulty{kinds: []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite}, limit: always}
	full.on.Store(true)
	s := mustOpen(t, silent(Options{Dir: "data", FS: errorfs.Wrap(filled(t, 3, 1000), full), ReadOnly: true}))
	defer mustClose(t, s)
	report, err := s.Check(context.Background())
	if err != nil || report.Records != 3 || report.FaultCount != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestAnOpeningEndsWithItsContext where the disk hangs.
func TestAnOpeningEndsWithItsContext(t *testing.T) {
	gate := newGate()
	gate.gate.Lock()
	defer gate.gate.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s, err := Open(ctx, silent(Options{Dir: "data", FS: gate}))
	if err == nil {
		mustClose(t, s)
		t.Fatal("it was opened")
	}
	if !strings.Contains(err.Error(), "not open in time") {
		t.Errorf("the error is %v", err)
	}
}

// TestAPingEndsWithItsContextWhileAnFsyncHangs, and does not say that all is well.
func TestAPingEndsWithItsContextWhileAnFsyncHangs(t *testing.T) {
	gate := newGate()
	s := mustOpen(t, silent(Options{Dir: "data", FS: gate}))
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	gate.gate.Lock()
	ctx, cancel := context.WithCancel(context.Background())
	applied, pinged := make(chan reservation.Outcome), make(chan error)
	go func() { applied <- s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At("a"), 1)})[0] }()
	waitForWaiting(t, s, 1)
	go func() { pinged <- s.Ping(ctx) }()
	waitForWaiting(t, s, 2)
	cancel()
	mustBeUnavailable(t, <-applied)
	if err := <-pinged; err == nil {
		t.Error("a store whose disk hangs says that it is well")
	}
	gate.gate.Unlock()
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	mustClose(t, s)
}

// TestACloseGivesUpWhereAnFsyncHangs, and says so; others are refused meanwhile.
func TestACloseGivesUpWhereAnFsyncHangs(t *testing.T) {
	gate := newGate()
	s := mustOpen(t, silent(Options{Dir: "data", FS: gate, closeWithin: time.Millisecond}))
	gate.gate.Lock()
	applied := make(chan reservation.Outcome)
	a := []reservation.Command{storetest.Reserve(storetest.At("a"), 1)}
	go func() { applied <- s.Apply(context.Background(), a)[0] }()
	waitForWaiting(t, s, 1)
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "did not close") {
		t.Errorf("the error is %v", err)
	}
	mustBeUnavailable(t, s.Apply(context.Background(), a)[0])
	if m := s.Metrics(); m.Waiting != 1 {
		t.Errorf("%+v", m)
	}
	gate.gate.Unlock()
	if outcome := <-applied; !isOwned(outcome) {
		t.Errorf("answered %v", outcome)
	}
}

// TestABatchOfLargeRecordsIsCommittedInParts, each of which reads the clock anew.
func TestABatchOfLargeRecordsIsCommittedInParts(t *testing.T) {
	var reads atomic.Int64
	s := mustOpen(t, silent(Options{Dir: "data", FS: vfs.NewMem(), Clock: func() reservation.Time {
		return storetest.Start + reservation.Time(reads.Add(1))
	}}))
	defer mustClose(t, s)
	const records, parts = 20, 3 // of 8 MiB
	var reserves, completes []reservation.Command
	for n := range records {
		a := storetest.At(fmt.Sprint(n))
		complete := storetest.Complete(a, n, "")
		complete.Result.Body = noise(n, reservation.MaxBodyBytes)
		reserves, completes = append(reserves, storetest.Reserve(a, n)), append(completes, complete, storetest.Lookup(a))
	}
	s.Apply(context.Background(), reserves)
	before := reads.Load()
	for n, outcome := range s.Apply(context.Background(), completes) {
		switch outcome.(type) {
		case *reservation.Recorded, *reservation.Found:
		default:
			t.Errorf("command %d is answered %T %v", n, outcome, outcome)
		}
	}
	if got := reads.Load() - before; got != parts {
		t.Errorf("it took %d commits, want %d", got, parts)
	}
	mustBeWhole(t, s)
}

// TestASweepPassesWhatADamagedBlockHolds and is not held up by it.
func TestASweepPassesWhatADamagedBlockHolds(t *testing.T) {
	c := newClockedStore(t)
	const records = 64
	for n := range records {
		a := storetest.At(fmt.Sprintf("%02d", n))
		c.Apply(context.Background(), []reservation.Command{
			storetest.Reserve(a, 1, storetest.RetentionOf(time.Second)), storetest.Complete(a, 1, strings.Repeat("x", 8<<10)),
		})
	}
	if err := c.db.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, c.Store)
	spoilTables(t, c.disk, "data")
	c.Store = mustOpen(t, c.options)
	defer mustClose(t, c.Store)
	c.advance(time.Second)
	deleted := 0
	for range 3 {
		deleted += c.mustSweep(t, records/2).Deleted
	}
	if swept := c.mustSweep(t, records); swept.More || deleted < records*3/4 || deleted == records {
		t.Errorf("%d of %d were swept, then %+v", deleted, records, swept)
	}
}

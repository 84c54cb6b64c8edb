package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// silent drops all log lines: these tests make errors on purpose.
func silent(options Options) Options {
	options.Logger = discard()
	return options
}

// faulty is a disk whose operations fail while on is set: those of the kinds, on files
// with the suffix, at most limit of them.
type faulty struct {
	suffix string
	kinds  []errorfs.OpKind
	limit  int64
	on     atomic.Bool
	hits   atomic.Int64
}

func (f *faulty) String() string { return "faulty" }

// MaybeError implements errorfs.Injector.
func (f *faulty) MaybeError(op errorfs.Op) error {
	if !f.on.Load() || !strings.HasSuffix(op.Path, f.suffix) {
		return nil
	}
	for _, kind := range f.kinds {
		if op.Kind == kind && f.hits.Add(1) <= f.limit {
			return syscall.ENOSPC
		}
	}
	return nil
}

const always = 1 << 40

// TestAFailedLogRefusesEverythingAndLosesNothing lets the log fail in every way, for
// good or once, and then opens the directory on a disk that works again.
func TestAFailedLogRefusesEverythingAndLosesNothing(t *testing.T) {
	writes := []errorfs.OpKind{errorfs.OpFileWrite}
	syncs := []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData}
	creates := []errorfs.OpKind{errorfs.OpCreate, errorfs.OpReuseForWrite}
	for _, c := range []struct {
		name  string
		fault *faulty
	}{
		{"no write", &faulty{suffix: ".log", kinds: writes, limit: always}},
		{"one write fails", &faulty{suffix: ".log", kinds: writes, limit: 1}},
		{"no fsync", &faulty{suffix: ".log", kinds: syncs, limit: always}},
		{"one fsync fails", &faulty{suffix: ".log", kinds: syncs, limit: 1}},
		{"no new log", &faulty{suffix: ".log", kinds: creates, limit: always}},
		{"one new log fails", &faulty{suffix: ".log", kinds: creates, limit: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := newSeed(t)
			disk := vfs.NewMem()
			options := silent(Options{Dir: "data", FS: errorfs.Wrap(disk, c.fault)})
			s := mustOpen(t, options)
			var refusals atomic.Int64
			l := &load{store: s, journal: newJournal(), seed: seed, body: 2 << 10}
			l.refused = func(*reservation.Error) { refusals.Add(1) }
			rng := rand.New(rand.NewPCG(seed, 0))
			ended := make(chan struct{})
			go func() {
				l.run(6)
				close(ended)
			}()
			l.journal.waitFor(rng.IntN(200))
			c.fault.on.Store(true)
			<-ended // each caller ends when it is refused
			if refusals.Load() != 6 || !s.Metrics().Failed {
				t.Errorf("%d of 6 callers were refused", refusals.Load())
			}
			mustRefuse(t, s)
			if err := s.Ping(context.Background()); !errors.Is(err, store.ErrFailed) {
				t.Errorf("Ping does not tell that the store has failed for good: %v", err)
			}
			_ = s.Close()

			options.FS = disk
			after := mustOpen(t, options)
			mustHoldAll(t, after, l.journal.copy())
			if err := after.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// mustRefuse fails the test if any call is answered.
func mustRefuse(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	a := storetest.At("refused")
	outcome := s.Apply(ctx, []reservation.Command{storetest.Reserve(a, 1)})[0]
	if err, refused := outcome.(*reservation.Error); !refused || err.Reason != reservation.StoreUnavailable || err.RetryAfter == 0 {
		t.Errorf("Apply was answered %v", outcome)
	}
	_, get := s.Get(ctx, store.Want(a))
	_, list := s.List(ctx, store.Query{Limit: 1})
	_, audit := s.Audit(ctx, store.AuditQuery{Limit: 1})
	_, sweep := s.Sweep(ctx, 1)
	_, stats := s.Stats(ctx)
	_, check := s.Check(ctx)
	for what, err := range map[string]error{"Get": get, "List": list, "Audit": audit, "Sweep": sweep, "Stats": stats, "Check": check, "Ping": s.Ping(ctx)} {
		var refused *reservation.Error
		unavailable := errors.As(err, &refused) && refused.Reason == reservation.StoreUnavailable
		if !unavailable && !(what == "Ping" && errors.Is(err, store.ErrFailed)) {
			t.Errorf("%s was answered %v", what, err)
		}
	}
}

// TestAFullDiskForTablesOnlyDelays: what is in the log is safe while tables can't be
// written, and they are written when there is room again.
func TestAFullDiskForTablesOnlyDelays(t *testing.T) {
	seed := newSeed(t)
	fault := &faulty{suffix: ".sst", kinds: []errorfs.OpKind{errorfs.OpCreate}, limit: 2}
	disk := vfs.NewMem()
	options := silent(Options{Dir: "data", FS: errorfs.Wrap(disk, fault)})
	s := mustOpen(t, options)
	fault.on.Store(true)
	l := &load{store: s, journal: newJournal(), seed: seed, body: 16 << 10}
	l.refused = func(err *reservation.Error) { t.Error(err) }
	ended := make(chan struct{})
	go func() {
		l.run(4)
		close(ended)
	}()
	l.journal.waitFor(100)
	written, err := s.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	<-written
	if fault.hits.Load() <= fault.limit {
		t.Error("no table failed")
	}
	l.journal.stop()
	<-ended
	mustHoldAll(t, s, l.journal.copy())
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	options.FS = disk
	after := mustOpen(t, options)
	mustHoldAll(t, after, l.journal.copy())
	if err := after.Close(); err != nil {
		t.Error(err)
	}
}

// TestADamagedBlockIsRefusedAndHidesNoOther spoils a table on disk.
func TestADamagedBlockIsRefusedAndHidesNoOther(t *testing.T) {
	disk := vfs.NewMem()
	options := silent(Options{Dir: "data", FS: disk})
	ctx := context.Background()
	s := mustOpen(t, options)
	const records = 64
	for n := range records {
		a := storetest.At(fmt.Sprintf("key-%02d", n))
		s.Apply(ctx, []reservation.Command{storetest.Reserve(a, n), storetest.Complete(a, n, strings.Repeat("x", 8<<10))})
	}
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	spoilTables(t, disk, "data")

	s = mustOpen(t, options)
	refused := make(map[reservation.Address]bool)
	for n := range records {
		outcome := s.Apply(ctx, []reservation.Command{storetest.Reserve(storetest.At(fmt.Sprintf("key-%02d", n)), n)})[0]
		switch out := outcome.(type) {
		case *reservation.Replay:
		case *reservation.Error:
			refused[storetest.At(fmt.Sprintf("key-%02d", n))] = true
			if out.Reason != reservation.StoreUnavailable {
				t.Errorf("what lies in a damaged block is answered %v", out)
			}
		default: // above all not Owned: what can't be read may have been done
			t.Errorf("a finished operation is answered %T", out)
		}
	}
	if len(refused) == 0 || len(refused) > records/4 {
		t.Errorf("%d of %d records are refused, want those of one block", len(refused), records)
	}
	report, err := s.Check(ctx)
	// Backwards, Pebble reads one further than it tells.
	if err != nil || report.Records < records-int64(len(refused))-1 {
		t.Errorf("Check read %d of %d records with %d damaged: %v", report.Records, records, len(refused), err)
	}
	named := make(map[reservation.Address]bool)
	for _, fault := range report.Faults {
		if strings.HasPrefix(fault.Problem, "the record can't be read") {
			named[fault.Address] = true
		}
	}
	if !maps.Equal(named, refused) || report.FaultCount != int64(len(refused))+1 { // and the gap
		t.Errorf("Check names %v, refused were %v: %+v", named, refused, report.Faults)
	}
	if s.Metrics().Failed {
		t.Error("one damaged block stopped the whole store")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// spoilTables changes some bytes in the middle of each table with records.
func spoilTables(t *testing.T, disk vfs.FS, dir string) {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") && len(readFile(t, disk, disk.PathJoin(dir, name))) > 4<<10 {
			spoil(t, disk, disk.PathJoin(dir, name))
			spoilt++
		}
	}
	if spoilt == 0 {
		t.Fatal("there is no table to spoil")
	}
}

func spoil(t *testing.T, disk vfs.FS, name string) {
	t.Helper()
	info, err := disk.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("spoilt"), info.Size()/2)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

package pebblestore

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestWhatWasAnsweredSurvivesAPowerCut cuts the power at random moments under load.
// The disk then holds what was synced, and any part of what was not.
func TestWhatWasAnsweredSurvivesAPowerCut(t *testing.T) {
	missing := cutPower(t, newSeed(t), 8, func(disk *vfs.MemFS) vfs.FS { return disk })
	for _, what := range missing {
		t.Errorf("lost: %s", what)
	}
}

// TestThePowerCutsWouldShowALogThatIsNotSynced proves that the test before can fail.
func TestThePowerCutsWouldShowALogThatIsNotSynced(t *testing.T) {
	missing := cutPower(t, newSeed(t), 8, func(disk *vfs.MemFS) vfs.FS { return lazyFS{disk} })
	if len(missing) == 0 {
		t.Error("nothing was lost although the log was never synced")
	}
}

// cutPower cuts the power again and again, each time starting from what the last cut
// left. It returns what was answered and lost.
func cutPower(t *testing.T, seed uint64, cuts int, wrap func(*vfs.MemFS) vfs.FS) (missing []string) {
	var now atomic.Int64
	now.Store(int64(storetest.Start))
	options := Options{
		Dir:    "var/lib/idemd", // nested: the new directories must survive too
		Clock:  func() reservation.Time { return reservation.Time(now.Load()) },
		Logger: quiet(t),
	}
	disk := vfs.NewCrashableMem()
	told := make(map[reservation.Address]*reservation.Record)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range cuts {
		options.FS = wrap(disk)
		s, err := Open(context.Background(), options)
		if err != nil {
			return append(missing, "everything: "+err.Error())
		}
		missing = append(missing, lost(t, s, told)...)
		mustBeWhole(t, s)
		told = stored(t, s)

		l := &load{
			store: s, journal: newJournal(), seed: seed + uint64(round), body: rng.IntN(4 << 10),
			advance: func(d time.Duration) { now.Add(d.Microseconds()) },
			refused: func(err *reservation.Error) { t.Error(err) },
		}
		maps.Copy(l.journal.told, told)
		var working sync.WaitGroup
		working.Go(func() { l.run(6) })
		working.Go(func() { rotateLogs(s, l.journal) })
		l.journal.waitFor(rng.IntN(400))
		told = l.journal.copy() // what is told later may be lost
		disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 20, 80}[rng.IntN(3)], RNG: rng})
		l.journal.stop()
		working.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	return missing
}

// rotateLogs begins a new log now and then, as happens when a lot was written.
func rotateLogs(s *Store, j *journal) {
	for !j.over() {
		j.waitFor(50)
		if written, err := s.db.AsyncFlush(); err == nil {
			<-written
		}
	}
}

// lazyFS tells that the log was synced when it was not.
type lazyFS struct{ vfs.FS }

func (l lazyFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return lazyLog(category)(l.FS.Create(name, category))
}

func (l lazyFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return lazyLog(category)(l.FS.ReuseForWrite(oldname, newname, category))
}

func lazyLog(category vfs.DiskWriteCategory) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err == nil && category == walCategory {
			file = lazyFile{file}
		}
		return file, err
	}
}

type lazyFile struct{ vfs.File }

func (lazyFile) Sync() error     { return nil }
func (lazyFile) SyncData() error { return nil }

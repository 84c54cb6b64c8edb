package pebblestore

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// fakeTime is a wall that can be set and a monotonic time.
type fakeTime struct{ wall, elapsed atomic.Int64 }

func newFakeTime() *fakeTime {
	f := new(fakeTime)
	f.wall.Store(storetest.Start.Time().UnixNano())
	return f
}

func (f *fakeTime) pass(d time.Duration) {
	f.wall.Add(int64(d))
	f.elapsed.Add(int64(d))
}

func (f *fakeTime) set(by time.Duration) { f.wall.Add(int64(by)) }

func (f *fakeTime) wallNow() time.Time        { return time.Unix(0, f.wall.Load()) }
func (f *fakeTime) elapsedNow() time.Duration { return time.Duration(f.elapsed.Load()) }
func (f *fakeTime) now() reservation.Time     { return reservation.TimeOf(f.wallNow()) }
func (f *fakeTime) options(o Options) Options { o.wall, o.elapsed = f.wallNow, f.elapsedNow; return o }
func (f *fakeTime) clock(floor reservation.Time) *steadyClock {
	return newSteadyClock(floor, f.wallNow, f.elapsedNow)
}

// TestTheClockIsTheWallWhileNobodySetsIt: so it is on a healthy machine.
func TestTheClockIsTheWallWhileNobodySetsIt(t *testing.T) {
	f := newFakeTime()
	c := f.clock(0)
	for range 100 {
		f.pass(time.Duration(rand.IntN(1e9)))
		if now, _ := c.read(); now != f.now() {
			t.Fatalf("the clock reads %d, the wall %d", now, f.now())
		}
	}
}

// TestTheClockRunsAtHalfSpeedUntilTheWallHasCaughtUp after it was set back.
func TestTheClockRunsAtHalfSpeedUntilTheWallHasCaughtUp(t *testing.T) {
	f := newFakeTime()
	c := f.clock(0)
	start, _ := c.read()
	f.set(-10 * time.Second)
	for second := range 20 {
		if now, _ := c.read(); now != start.Add(time.Duration(second)*time.Second/2) {
			t.Fatalf("%d s after the wall was set back the clock has gone %v", second, now.Sub(start))
		}
		if got, want := c.ahead(), 10*time.Second-time.Duration(second)*time.Second/2; got != want {
			t.Fatalf("the clock is %v ahead, want %v", got, want)
		}
		f.pass(time.Second)
	}
	f.pass(time.Second)
	if now, _ := c.read(); now != f.now() || c.ahead() != 0 {
		t.Errorf("the clock reads %d after the wall caught up at %d", now, f.now())
	}
}

// TestTheClockNeverStepsBackNorStandsStill, whatever is done to the wall, and however
// often it is read. No lease ends early unless the wall jumps ahead.
func TestTheClockNeverStepsBackNorStandsStill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFakeTime()
		c := f.clock(0)
		last, floor := c.read()
		start, passed, jumped := last, time.Duration(0), false
		for range rapid.IntRange(1, 200).Draw(t, "reads") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				f.set(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "back")))
			case 1:
				f.set(time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "ahead")))
				jumped = true
			default:
				d := time.Duration(rapid.SampledFrom([]int64{1, 3, 999, 1e3, 1e6, 1e9}).Draw(t, "pass"))
				f.pass(d)
				passed += d
			}
			now, next := c.read()
			if next != 0 {
				floor = next
			}
			switch {
			case now < last:
				t.Fatalf("the clock went from %d to %d", last, now)
			case now > floor:
				t.Fatalf("%d was read, beyond the floor %d", now, floor)
			case now < f.now():
				t.Fatalf("the clock reads %d, the wall is at %d already", now, f.now())
			case now.Sub(start) < (passed/2).Truncate(time.Microsecond)-time.Microsecond:
				t.Fatalf("%v passed, the clock went %v", passed, now.Sub(start))
			case !jumped && now.Sub(start) > passed+time.Microsecond:
				t.Fatalf("%v passed, the clock went %v", passed, now.Sub(start))
			}
			last = now
		}
	})
}

// told is the time that a store tells.
func told(t testing.TB, s *Store) reservation.Time {
	t.Helper()
	snapshot, err := s.Get(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Now
}

// TestTheClockDoesNotStepBackAcrossRestarts: neither a clean one nor a power cut,
// though the wall is set back meanwhile. The times that reads tell count as well.
func TestTheClockDoesNotStepBackAcrossRestarts(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFakeTime()
	disk := vfs.NewCrashableMem()
	options := f.options(silent(Options{Dir: "data"}))
	var last reservation.Time
	for round := range 30 {
		options.FS = disk
		s := mustOpen(t, options)
		for range rng.IntN(20) {
			now := told(t, s)
			if now < last {
				t.Fatalf("round %d: told %d after %d", round, now, last)
			}
			last = now
			if rng.IntN(3) == 0 {
				outcome := s.Apply(context.Background(), []reservation.Command{storetest.Reserve(storetest.At("clock"), round, storetest.LeaseOf(time.Minute))})[0]
				if owned, is := outcome.(*reservation.Owned); is {
					last = max(last, owned.LeaseExpiresAt.Add(-owned.LeaseRemaining))
				}
			}
			f.pass(time.Duration(rng.IntN(int(200 * time.Millisecond))))
		}
		if rng.IntN(2) == 0 {
			disk = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		f.set(-time.Duration(rng.IntN(int(time.Minute))))
	}
}

// TestAFloorIsWrittenOnlyNowAndThen: reading costs no fsync each time.
func TestAFloorIsWrittenOnlyNowAndThen(t *testing.T) {
	f, gate := newFakeTime(), newGate()
	s := mustOpen(t, f.options(Options{Dir: "data", FS: gate, Logger: quiet(t)}))
	before := gate.syncs.Load()
	const reads, every = 1000, time.Millisecond
	for range reads {
		told(t, s)
		f.pass(every)
	}
	if syncs, most := gate.syncs.Load()-before, int64(reads*every/floorStep)+1; syncs == 0 || syncs > most {
		t.Errorf("%d reads in %v took %d fsyncs, want 1 to %d", reads, reads*every, syncs, most)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestAClockFarAheadOfTheWallIsWarnedOf on opening.
func TestAClockFarAheadOfTheWallIsWarnedOf(t *testing.T) {
	f := newFakeTime()
	var log bytes.Buffer
	options := f.options(Options{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	reopen := func() *Store {
		s := mustOpen(t, options)
		told(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	reopen()
	f.set(-time.Second)
	reopen()
	if strings.Contains(log.String(), "set back") {
		t.Errorf("a small step is warned of: %s", log.String())
	}
	f.set(-time.Minute)
	s := reopen()
	if !strings.Contains(log.String(), "set back") {
		t.Error("a clock a minute ahead is not warned of")
	}
	if ahead := s.Metrics().ClockAhead; ahead < time.Minute {
		t.Errorf("the metric says that the clock is %v ahead", ahead)
	}
}

// TestALeaseLastsWhenTheWallIsSetBack, and when the process restarts on top.
func TestALeaseLastsWhenTheWallIsSetBack(t *testing.T) {
	f := newFakeTime()
	options := f.options(silent(Options{Dir: "data", FS: vfs.NewMem()}))
	s := mustOpen(t, options)
	ask := func(n int) reservation.Outcome {
		return s.Apply(context.Background(), []reservation.Command{
			storetest.Reserve(storetest.At("lease"), n, storetest.Rerunnable, storetest.LeaseOf(10*time.Second)),
		})[0]
	}
	if _, owned := ask(1).(*reservation.Owned); !owned {
		t.Fatal("not owned")
	}
	f.set(-time.Hour)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, options)
	f.pass(9 * time.Second)
	if _, busy := ask(2).(*reservation.InProgress); !busy {
		t.Error("taken over before the lease was over")
	}
	f.pass(12 * time.Second) // half speed: 21 s make more than 10
	if owned, is := ask(2).(*reservation.Owned); !is || !owned.Takeover {
		t.Error("the lease never ends")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

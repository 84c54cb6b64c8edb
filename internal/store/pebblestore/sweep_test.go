package pebblestore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// clockedStore is a store in memory whose clock stands still until it is moved.
type clockedStore struct {
	*Store
	now     atomic.Int64
	disk    vfs.FS
	options Options
}

func newClockedStore(t *testing.T) *clockedStore {
	t.Helper()
	c := new(clockedStore)
	c.now.Store(int64(storetest.Start))
	c.disk = vfs.NewMem()
	c.options = silent(Options{
		Dir: "data", FS: c.disk, Clock: func() reservation.Time { return reservation.Time(c.now.Load()) },
	})
	c.Store = mustOpen(t, c.options)
	return c
}

func (c *clockedStore) advance(d time.Duration) { c.now.Add(d.Microseconds()) }

// finish reserves and completes an address with a retention of a second.
func (c *clockedStore) finish(a reservation.Address) {
	c.Apply(context.Background(), []reservation.Command{
		storetest.Reserve(a, 1, storetest.RetentionOf(time.Second)), storetest.Complete(a, 1, "x"),
	})
}

func (c *clockedStore) mustSweep(t *testing.T, limit int) store.Swept {
	t.Helper()
	swept, err := c.Sweep(context.Background(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return swept
}

func (c *clockedStore) mustHave(t *testing.T, records int64) {
	t.Helper()
	report, err := c.Check(context.Background())
	if err != nil || report.FaultCount != 0 || report.Records != records {
		t.Errorf("%+v, %v, want %d records", report, err, records)
	}
}

// TestASweepGoesOnWhereTheLastOneEnded, also within one expiry time and across what
// expires later; nothing is left behind.
func TestASweepGoesOnWhereTheLastOneEnded(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	const each, waves = 130, 4
	for wave := range waves {
		for n := range each { // all of a wave expire at one time
			c.finish(storetest.At(fmt.Sprintf("%03d-%d", n, wave)))
		}
		c.advance(time.Second)
		swept := c.mustSweep(t, 70)
		if swept.Deleted != 70 || !swept.More || swept.Lag != 0 {
			t.Errorf("wave %d: %+v", wave, swept)
		}
		if swept = c.mustSweep(t, 70); swept.Deleted != each-70 || swept.More || swept.Lag != 0 {
			t.Errorf("wave %d: %+v", wave, swept)
		}
	}
	c.mustHave(t, 0)
}

// TestALagIsThatOfTheOldestLeft, which expired 4 s ago.
func TestALagIsThatOfTheOldestLeft(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	c.finish(storetest.At("first"))
	c.advance(300 * time.Millisecond)
	c.finish(storetest.At("second"))
	c.advance(5 * time.Second)
	if swept := c.mustSweep(t, 1); !swept.More || swept.Lag != 4*time.Second {
		t.Errorf("%+v", swept)
	}
}

// TestASweepKeepsWhatItCantDecode and is not held up by it.
func TestASweepKeepsWhatItCantDecode(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	for n := range 10 {
		c.finish(storetest.At(fmt.Sprint(n)))
	}
	damaged := storetest.At("3")
	if err := c.db.Set(recordKey(damaged), []byte("garbage"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	deleted := 0
	for range 10 {
		deleted += c.mustSweep(t, 1).Deleted
	}
	if swept := c.mustSweep(t, 100); deleted != 9 || swept.More {
		t.Errorf("%d deleted, then %+v; want all but one, and an end", deleted, swept)
	}
	snapshot, err := c.Get(context.Background(), store.Want(damaged))
	if err != nil || !snapshot.Found[0].Unreadable {
		t.Errorf("the damaged record is gone: %+v, %v", snapshot, err)
	}
}

// TestASweepBelievesTheRecordNotItsIndex: entries that nothing stands behind go alone.
func TestASweepBelievesTheRecordNotItsIndex(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	busy, done := storetest.At("busy"), storetest.At("done")
	c.Apply(context.Background(), []reservation.Command{storetest.Reserve(busy, 1)})
	c.Apply(context.Background(), []reservation.Command{storetest.Reserve(done, 1), storetest.Complete(done, 1, "x")})
	past := reservation.Time(c.now.Load()).Add(-time.Second)
	for _, a := range []reservation.Address{busy, done, storetest.At("never-was")} {
		if err := c.db.Set(expiryKey(past, a), nil, pebble.Sync); err != nil {
			t.Fatal(err)
		}
		c.finished++ // as if it had been counted
	}
	if swept := c.mustSweep(t, 100); swept.Deleted != 0 || swept.More {
		t.Errorf("%+v", swept)
	}
	c.mustHave(t, 2)
}

// TestWhatIsUsedAgainIsNotSwept: an expired record whose key was reserved again.
func TestWhatIsUsedAgainIsNotSwept(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	a := storetest.At("again")
	c.finish(a)
	c.advance(time.Second)
	if outcome := c.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, 2)})[0]; !isOwned(outcome) {
		t.Fatalf("answered %v", outcome)
	}
	if swept := c.mustSweep(t, 100); swept.Deleted != 0 {
		t.Errorf("%+v", swept)
	}
	c.mustHave(t, 1)
}

// TestSweepingUnderLoadTakesOnlyWhatHasExpired, and in the end all of it.
func TestSweepingUnderLoadTakesOnlyWhatHasExpired(t *testing.T) {
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	l := &load{store: c, journal: newJournal(), seed: newSeed(t), advance: c.advance}
	l.refused = func(err *reservation.Error) { t.Error(err) }
	ended := make(chan struct{})
	go func() {
		l.run(6)
		close(ended)
	}()
	l.journal.waitFor(2000)
	l.journal.stop()
	<-ended
	mustHoldAll(t, c, l.journal.copy())
	c.advance(2 * time.Second)
	before, err := c.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var deleted int64
	for more := true; more; {
		swept := c.mustSweep(t, 100)
		deleted, more = deleted+int64(swept.Deleted), swept.More
	}
	if deleted != before.Finished {
		t.Errorf("%d swept, %d were finished", deleted, before.Finished)
	}
	c.mustHave(t, before.Live+before.Lapsed+before.Unknown)
}

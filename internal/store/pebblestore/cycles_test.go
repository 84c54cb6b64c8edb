//go:build !race

// Under the race detector a gigabyte takes minutes, and there are no races to find: one
// goroutine calls.

package pebblestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// Cycles of keys that expire and are swept: the disk that they need levels off, also
// after a time in which nothing was swept.
func TestTheDiskLevelsOffOverCycles(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes a gigabyte")
	}
	const keys, bytes, cycles, warm = 500, 32 << 10, 36, 20
	c := newClockedStore(t)
	defer mustClose(t, c.Store)
	cycle := func(n int) {
		const size = 100
		for from := 0; from < keys; from += size {
			var reserves, completes []reservation.Command
			for i := from; i < from+size; i++ {
				a := storetest.At(fmt.Sprintf("cycle-%d-%d", n, i))
				complete := storetest.Complete(a, 1, "")
				complete.Result.Body = noise(n*keys+i, bytes)
				reserves = append(reserves, storetest.Reserve(a, 1, storetest.RetentionOf(time.Second)))
				completes = append(completes, complete)
			}
			c.Apply(context.Background(), reserves)
			for i, outcome := range c.Apply(context.Background(), completes) {
				if _, recorded := outcome.(*reservation.Recorded); !recorded {
					t.Fatalf("%v is answered %T %v", completes[i].Target(), outcome, outcome)
				}
			}
		}
		c.advance(time.Second)
	}
	sweep := func() {
		for c.mustSweep(t, 500).More {
		}
	}
	most := uint64(0)
	for n := range cycles {
		cycle(n)
		sweep()
		used := c.db.Metrics().DiskSpaceUsage()
		if n < warm { // the logs that Pebble keeps to use again are not all there yet
			most = max(most, used)
		} else if used > most*5/4 {
			t.Errorf("cycle %d: %d MiB are used, at most %d were in the first %d", n, used>>20, most>>20, warm)
		}
	}
	const unswept = 10
	for n := range unswept {
		cycle(cycles + n)
	}
	grown := c.db.Metrics().DiskSpaceUsage()
	for n := range warm {
		sweep()
		cycle(cycles + unswept + n)
	}
	sweep()
	used := c.db.Metrics().DiskSpaceUsage()
	t.Logf("at most %d MiB; after %d cycles without sweeps %d MiB, then with them %d MiB", most>>20, unswept, grown>>20, used>>20)
	if used >= grown {
		t.Errorf("sweeping again gives nothing back")
	}
	c.mustHave(t, 0)
}

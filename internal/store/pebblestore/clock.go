package pebblestore

import (
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// clock is the store's time. It is read under the store's lock.
type clock interface {
	// read is the time now. If floor is set, it must be on disk before any answer
	// that goes by this time leaves.
	read() (now, floor reservation.Time)
	// ahead is by how much the last time read is ahead of the wall.
	ahead() time.Duration
}

// floorStep is how far each floor reaches beyond the time for which it was written:
// one small write each floorStep while the store is in use, and after a restart the
// clock is at most this far ahead of the wall.
const floorStep = 250 * time.Millisecond

// steadyClock makes a clock that never steps back, also across restarts, and never
// stands still, out of a wall clock that anybody may set:
//
//	now = max(wall, last + elapsed/2)
//
// While the wall is ahead, the store's clock is the wall. When the wall was set back,
// the store's clock runs on at half speed until the wall has caught up with it.
// Leases and retentions then last up to twice as long as told, which is the safe
// side: nobody is taken over early, nothing is forgotten early.
//
// Across restarts it goes by the floor: no time beyond the floor is told before a
// later floor is on disk, and a new process starts at the floor or later.
//
// It can't help where the wall jumps ahead: leases end early then, and when the wall
// is set right again, the store's clock stays ahead for twice as long as it jumped.
type steadyClock struct {
	wall func() time.Time
	// elapsed is monotonic time since some fixed moment of this process.
	elapsed func() time.Duration

	last        time.Duration // since the Unix epoch; finer than Time, so that half steps add up
	lastElapsed time.Duration
	lead        time.Duration // of last over the wall
	floor       reservation.Time
}

// newSteadyClock starts a clock at the floor that the process before left, or at the
// wall if that is later.
func newSteadyClock(floor reservation.Time, wall func() time.Time, elapsed func() time.Duration) *steadyClock {
	c := &steadyClock{
		wall:        wall,
		elapsed:     elapsed,
		last:        time.Duration(floor) * time.Microsecond,
		lastElapsed: elapsed(),
		floor:       floor,
	}
	c.advance()
	return c
}

func (c *steadyClock) advance() {
	// Only the halved part counts as used, so that an odd nanosecond is not lost.
	half := (c.elapsed() - c.lastElapsed) / 2
	c.lastElapsed += 2 * half
	wall := time.Duration(c.wall().UnixNano())
	c.last = max(wall, c.last+half)
	c.lead = c.last - wall
}

func (c *steadyClock) read() (now, floor reservation.Time) {
	c.advance()
	now = reservation.Time(c.last / time.Microsecond)
	if now <= c.floor {
		return now, 0
	}
	c.floor = now.Add(floorStep)
	return now, c.floor
}

func (c *steadyClock) ahead() time.Duration { return c.lead }

// exactClock is a clock that is trusted to be right, as a test's is: no floor is kept
// for it.
type exactClock func() reservation.Time

func (c exactClock) read() (now, floor reservation.Time) { return c(), 0 }

func (c exactClock) ahead() time.Duration { return 0 }

package storetest

import (
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Start is the time at which every harness's clock stands at first.
const Start = reservation.Time(1_700_000_000_000_000)

// Harness is a fresh store under test and the strings a case may pull. Its clock
// stands still unless it is set.
type Harness struct {
	Store store.Store
	// SetClock sets the store's own clock. It is never set back.
	SetClock func(reservation.Time)
	// Reopen closes the store and opens it again on the same data. The clock keeps
	// its time. Nil: the store keeps nothing beyond Close.
	Reopen func()
	// Hold holds the address as a rival writer in another process would, until
	// release is called. Nil: no other process can write to this store.
	Hold func(reservation.Address) (release func())
	// Damage makes the stored record at the address unreadable. Nil: nothing is
	// encoded.
	Damage func(reservation.Address)

	now reservation.Time
	// seen is what a script read last.
	seen map[reservation.Address]store.Seen
}

// Open makes a fresh store; it is closed when the test ends.
type Open func(t testing.TB) *Harness

// Now is the time of the store's clock.
func (h *Harness) Now() reservation.Time {
	if h.now == 0 {
		h.now = Start
	}
	return h.now
}

// Advance moves the store's clock on.
func (h *Harness) Advance(d time.Duration) {
	h.now = h.Now().Add(d)
	h.SetClock(h.now)
}

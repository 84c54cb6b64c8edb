package engine

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// Quotas bound what a tenant or a namespace may take. Zero = no bound.
type Quotas struct {
	// Rate is how many Reserves a second are taken, Burst how many at once after a
	// pause. Nothing else is ever refused for its rate: what was done must be told.
	Rate  float64
	Burst int64
	// Live is how many reservations may be within their lease. What exists is answered
	// beyond it: only new grants are refused.
	Live int64
	// StoredBytes is what records may take in the store, results above all. Beyond it only
	// new grants are refused: what was done can still be told.
	StoredBytes int64
}

// The most that quotas can say, far beyond what a daemon does.
const (
	MaxRate = 1e6
	MaxLive = 1e9
	// MaxStoredBytes is a pebibyte.
	MaxStoredBytes = 1 << 50
)

// Validate tells what is wrong with the quotas.
func (q Quotas) Validate() error {
	var errs []error
	if !(q.Rate >= 0 && q.Rate <= MaxRate) {
		errs = append(errs, fmt.Errorf("quotas.rate must be up to %g a second", float64(MaxRate)))
	}
	if q.Burst < 0 || q.Burst > MaxRate || q.Burst > 0 && q.Rate == 0 {
		errs = append(errs, fmt.Errorf("quotas.burst must be from 1 to %g, and goes with quotas.rate", float64(MaxRate)))
	}
	if q.Live < 0 || q.Live > MaxLive {
		errs = append(errs, fmt.Errorf("quotas.live must be up to %g", float64(MaxLive)))
	}
	if q.StoredBytes < 0 || q.StoredBytes > MaxStoredBytes {
		errs = append(errs, fmt.Errorf("quotas.stored_bytes must be up to %d", int64(MaxStoredBytes)))
	}
	return errors.Join(errs...)
}

// burst is what the bucket holds when it is full: one second's worth unless told.
func (q Quotas) burst() float64 {
	if q.Burst > 0 {
		return float64(q.Burst)
	}
	return max(1, math.Ceil(q.Rate))
}

// quota is what a tenant or a namespace has taken of its quotas at this daemon.
type quota struct {
	scope  Scope
	limits Quotas

	mu sync.Mutex
	// tokens are what is left of the rate, as of filled.
	tokens float64
	filled time.Time
	// asked counts the Reserves since the daemons last shared the quotas; lately is how
	// many it were a second before.
	asked  int64
	lately float64
	// share is this daemon's part of the quotas: 1 where it is the only one.
	share float64

	// counted is how many were live when the store counted; settled is by how many
	// that has changed since, by this daemon; pending are Reserves under way that may
	// be granted.
	counted, settled, pending int64

	// measured is what was stored when that was last measured, added what this daemon
	// has added since.
	measured, added int64
}

func newQuota(scope Scope, limits Quotas, now time.Time) *quota {
	return &quota{scope: scope, limits: limits, tokens: limits.burst(), filled: now, share: 1}
}

// take takes one Reserve from the rate. Where there is none left, it tells when there is.
func (q *quota) take(now time.Time) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked++
	if q.limits.Rate == 0 {
		return 0
	}
	rate, burst := q.limits.Rate*q.share, max(1, q.limits.burst()*q.share)
	if passed := now.Sub(q.filled); passed > 0 {
		q.tokens = min(burst, q.tokens+passed.Seconds()*rate)
		q.filled = now
	}
	if q.tokens >= 1 {
		q.tokens--
		return 0
	}
	return max(time.Duration((1-q.tokens)/rate*float64(time.Second)), minRateRetry)
}

// minRateRetry keeps those who are refused from coming back at once.
const minRateRetry = 10 * time.Millisecond

// giveBack returns what was taken for a Reserve that another quota refused.
func (q *quota) giveBack() {
	if q.limits.Rate == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens++
}

// enter counts a Reserve that may be granted, if there is room for one more.
func (q *quota) enter() bool {
	if q.limits.Live == 0 && q.limits.StoredBytes == 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full() {
		return false
	}
	if q.limits.Live == 0 {
		return true
	}
	room := math.Ceil(float64(max(0, q.limits.Live-q.counted)) * q.share)
	if float64(q.settled+q.pending) >= room {
		return false
	}
	q.pending++
	return true
}

// full tells whether as much is stored as may be. Call it with mu held.
func (q *quota) full() bool {
	return q.limits.StoredBytes > 0 && q.measured+q.added >= q.limits.StoredBytes
}

// settle ends what enter began: granted or not.
func (q *quota) settle(granted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending--
	if granted {
		q.settled++
	}
}

// finished counts a reservation that has ended its lease.
func (q *quota) finished() {
	if q.limits.Live == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.settled--
}

// mark is how far this daemon had counted by itself when the store began to.
func (q *quota) mark() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.settled
}

// recount takes what the store has counted since the mark.
func (q *quota) recount(mark, live int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.counted, q.settled = live, q.settled-mark
}

// rateLimited is for a Reserve over the rate. Its hint is when there is room again.
func (q *quota) rateLimited(wait time.Duration) *reservation.Error {
	return &reservation.Error{
		Reason: reservation.RateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("%s may reserve %g times a second (burst %g): its quotas.rate", q.scope, q.limits.Rate, q.limits.burst()),
	}
}

// liveRetry is when to ask again where all that may be live is.
const liveRetry = time.Second

// storedRetry is when to ask again where all is stored that may be: sweeping takes its time.
const storedRetry = time.Minute

// exceeded says which quota has no room for a grant.
func (q *quota) exceeded() *reservation.Error {
	q.mu.Lock()
	full := q.full()
	q.mu.Unlock()
	if full {
		return &reservation.Error{
			Reason: reservation.QuotaExceeded, RetryAfter: storedRetry,
			Message: fmt.Sprintf("%s may store %d bytes: its quotas.stored_bytes; retain less, or for a shorter time", q.scope, q.limits.StoredBytes),
		}
	}
	return &reservation.Error{
		Reason: reservation.QuotaExceeded, RetryAfter: liveRetry,
		Message: fmt.Sprintf("%s may have %d reservations within their lease: its quotas.live; complete or fail some", q.scope, q.limits.Live),
	}
}

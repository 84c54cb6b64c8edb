package torture

import (
	"math/rand/v2"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/bank"
)

// plan is all that the seed decides about one operation.
type plan struct {
	mode idem.Mode
	// reconcile: whoever hears UNRESOLVED asks the bank.
	reconcile bool
	lease     time.Duration
	// retention is short for some: they are swept meanwhile.
	retention time.Duration
	clients   []clientPlan
}

// clientPlan is one of those who want the operation done.
type clientPlan struct {
	process int
	tries   []tryPlan
}

// tryPlan is one call of Do, and what goes wrong in it if it becomes the owner.
type tryPlan struct {
	pause, wait time.Duration
	hangUp      moment
	// after is how long after that moment the client hangs up.
	after   time.Duration
	dies    moment
	pretend bank.Pretend
}

// moment is when something goes wrong.
type moment int

const (
	never moment = iota
	reserving
	answering // when the answer to its Reserve is on its way
	beforeEffect
	afterEffect
)

// planOutages: most daemons come back at once, some after many a lease is over.
func planOutages(seed uint64, kills int) (down []time.Duration) {
	r := rand.New(rand.NewPCG(seed, ^uint64(0)))
	for range kills {
		d := time.Duration(0)
		if percent(r, 30) {
			d = upTo(r, 3*time.Second)
		}
		down = append(down, d)
	}
	return down
}

// settleTime is longer than any request can be under way to the bank.
const settleTime = 4 * time.Second

// planFor is the same for the same seed and index.
func planFor(seed uint64, index, processes int) plan {
	r := rand.New(rand.NewPCG(seed, uint64(index)))
	p := plan{lease: 1500*time.Millisecond + upTo(r, 1500*time.Millisecond), retention: 24 * time.Hour}
	if percent(r, 25) {
		p.mode = idem.Transactional
	} else {
		p.reconcile = percent(r, 50)
	}
	for range 1 + pick(r, 70, 20, 10) {
		c := clientPlan{process: r.IntN(processes)}
		for range 1 + r.IntN(3) {
			c.tries = append(c.tries, planTry(r))
		}
		p.clients = append(p.clients, c)
	}
	if percent(r, 10) {
		p.retention = time.Second + upTo(r, 3*time.Second)
	}
	return p
}

func planTry(r *rand.Rand) tryPlan {
	t := tryPlan{pause: upTo(r, 100*time.Millisecond), wait: -1}
	if percent(r, 50) {
		t.wait = upTo(r, time.Second)
	}
	if percent(r, 10) {
		t.pretend.Before = upTo(r, 400*time.Millisecond)
	}
	if percent(r, 5) {
		t.pretend.After = upTo(r, 400*time.Millisecond)
	}
	if percent(r, 1) {
		t.pretend.Before = 2500 * time.Millisecond // longer than many a lease
	}
	switch pick(r, 84, 4, 2, 1, 1, 2, 2, 1, 1, 2) {
	case 1:
		t.pretend.Refuse = "busy"
	case 2:
		t.pretend.Refuse = "declined"
	case 3:
		t.pretend.HangUp = "before"
	case 4:
		t.pretend.HangUp = "after"
	case 5:
		t.hangUp, t.after = reserving, upTo(r, 3*time.Millisecond)
	case 6:
		t.hangUp, t.after = afterEffect, 0
	case 7:
		t.hangUp, t.after = beforeEffect, upTo(r, 20*time.Millisecond)
		t.pretend.Before = upTo(r, 40*time.Millisecond)
	case 8:
		t.dies = beforeEffect
		if percent(r, 50) {
			t.dies = afterEffect
		}
	case 9:
		t.hangUp = answering
	}
	return t
}

func percent(r *rand.Rand, n int) bool { return r.IntN(100) < n }

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// pick chooses an index by weights that add up to 100.
func pick(r *rand.Rand, weights ...int) int {
	n := r.IntN(100)
	for i, weight := range weights {
		if n -= weight; n < 0 {
			return i
		}
	}
	return 0
}

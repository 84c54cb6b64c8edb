package relay

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// slow is how long a round waits, at least, for events that others need not wait for.
	slow = 250 * time.Millisecond
	// While the broker gives no sign, this many are sent at once, and none is begun after
	// this time: it may answer at once that it does not take them, or not at all.
	cautiousWorkers = 10
	cautiousTime    = time.Second
)

// flight is a batch that is being sent.
type flight struct {
	*sender
	claimed claimed
	lanes   [][]int
	workers int
	// last is until when sending may begin.
	last time.Time

	mu       sync.Mutex
	taken    int // lanes
	outcomes []outcome
	// left: the round has gone on without what is under way.
	left bool
}

// newFlight: nothing begins that might not end within the claim, which is counted from
// before it was asked for, nine tenths of it: the database's clock may run faster.
func (s *sender) newFlight(c claimed, lanes [][]int, cautious bool) *flight {
	f := &flight{
		sender: s, claimed: c, lanes: lanes, workers: s.config.Workers, outcomes: make([]outcome, len(c.events)),
		last: c.asked.Add(s.config.Claim*9/10 - s.config.SendTimeout),
	}
	if soon := time.Now().Add(cautiousTime); cautious && soon.Before(f.last) {
		f.last = soon
	}
	if cautious {
		f.workers, f.lanes = min(f.workers, cautiousWorkers), s.byTopic(c.events, lanes)
	}
	return f
}

// work sends lanes until there are none.
func (f *flight) work(ctx context.Context) {
	for lane, more := f.take(); more; lane, more = f.take() {
		for _, i := range lane {
			if !f.begin(ctx, i) {
				return
			}
			if !f.end(i, f.one(ctx, &f.claimed.events[i])) {
				break
			}
		}
	}
}

func (f *flight) take() (lane []int, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken == len(f.lanes) {
		return nil, false
	}
	f.taken++
	return f.lanes[f.taken-1], true
}

// begin is false where nothing may begin any more.
func (f *flight) begin(ctx context.Context, i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left || ctx.Err() != nil || time.Now().After(f.last) || f.stuck() {
		return false
	}
	f.outcomes[i].begun = time.Now()
	return true
}

// end notes an outcome, and is false where the lane ends with it.
func (f *flight) end(i int, o outcome) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left {
		f.late.arrive(lateOutcome{f.claimed, f.claimed.events[i], o})
	} else {
		f.outcomes[i] = o
	}
	return o.err == nil
}

// leave goes on without what is under way, if that is only a few slow ones: every lane has
// begun, and half of the workers are left for the rounds to come.
func (f *flight) leave() (outcomes []outcome, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	open := 0
	for i := range f.outcomes {
		if f.outcomes[i].underWay() {
			open++
		}
	}
	if f.taken < len(f.lanes) || !f.late.expect(open, max(1, f.config.Workers/2)) {
		return nil, false
	}
	f.left = true
	return slices.Clone(f.outcomes), true
}

// byTopic lets the topics take turns, and within one chance decide: where one takes
// nothing, the others' turns come all the same.
func (s *sender) byTopic(events []event, lanes [][]int) [][]int {
	var topics []string
	of := map[string][][]int{}
	for _, n := range rand.Perm(len(lanes)) {
		topic := topicOf(s.config, &events[lanes[n][0]])
		if of[topic] == nil {
			topics = append(topics, topic)
		}
		of[topic] = append(of[topic], lanes[n])
	}
	turns := make([][]int, 0, len(lanes))
	for len(turns) < len(lanes) {
		for _, topic := range topics {
			if rest := of[topic]; len(rest) > 0 {
				turns, of[topic] = append(turns, rest[0]), rest[1:]
			}
		}
	}
	return turns
}

// late are the outcomes of events that rounds have not waited for.
type late struct {
	mu       sync.Mutex
	open     int
	arrived  []lateOutcome
	arriving chan struct{}
}

type lateOutcome struct {
	claimed claimed
	event   event
	outcome outcome
}

// expect counts on further ones, unless that would be too many.
func (l *late) expect(n, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open+n > most {
		return false
	}
	l.open += n
	return true
}

func (l *late) arrive(o lateOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived = append(l.arrived, o)
	select {
	case l.arriving <- struct{}{}:
	default:
	}
}

// take hands over what has arrived, and tells whether more is under way.
func (l *late) take() (arrived []lateOutcome, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	arrived, l.arrived = l.arrived, nil
	l.open -= len(arrived)
	return arrived, l.open > 0
}

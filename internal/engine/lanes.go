package engine

import "slices"

// lanes hold the calls of a queue, a lane for each tenant. Batches take from them in
// turn: who has many calls waits behind them, and others don't.
type lanes struct {
	of   map[string]*lane // those with calls that are not answered
	ring []*lane          // those with calls that wait
	next int              // whose turn it is, in ring
}

// lane is one tenant's.
type lane struct {
	waiting []*call
	// pending and size are of the calls that are not answered: those that wait, and
	// those that are in a batch.
	pending, size int
}

func (l *lanes) add(tenant string, c *call, n, size int) {
	own := l.of[tenant]
	if own == nil {
		own = &lane{}
		l.of[tenant] = own
	}
	if len(own.waiting) == 0 {
		l.ring = append(l.ring, own)
	}
	own.waiting = append(own.waiting, c)
	own.pending += n
	own.size += size
}

// cut takes a batch of calls.
func (l *lanes) cut() []*call {
	var batch []*call
	var b load
	for len(l.ring) > 0 {
		l.next %= len(l.ring)
		own := l.ring[l.next]
		if !b.takes(own.waiting[0]) {
			break
		}
		batch = append(batch, own.waiting[0])
		own.waiting[0] = nil // the array stays
		if own.waiting = own.waiting[1:]; len(own.waiting) > 0 {
			l.next++
			continue
		}
		own.waiting = nil
		l.ring = slices.Delete(l.ring, l.next, l.next+1)
	}
	return batch
}

func (l *lanes) answered(tenant string, n, size int) {
	own := l.of[tenant]
	own.pending -= n
	if own.size -= size; own.pending == 0 {
		delete(l.of, tenant)
	}
}

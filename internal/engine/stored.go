package engine

import (
	"context"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// measuring is how far the measuring of what is stored has come.
type measuring struct {
	left  []*quota
	after reservation.Address
	sum   int64
	mark  int64
}

// MeasureStored measures the next part of what there are quotas of stored bytes for, and
// tells whether it is through with all of it. Call it again and again, from one goroutine,
// with rests in between. Error: STORE_UNAVAILABLE; the next call goes on there.
func (e *Engine) MeasureStored(ctx context.Context) (through bool, err error) {
	sizer, can := e.store.(store.Sizer)
	m := &e.measuring
	if len(m.left) == 0 {
		for _, q := range e.rules.Load().quotas {
			if can && q.limits.StoredBytes > 0 {
				m.left = append(m.left, q)
			}
		}
		m.begin()
	}
	if len(m.left) == 0 {
		return true, nil
	}
	q := m.left[0]
	size, err := sizer.Size(ctx, store.Scope(q.scope), m.after, store.MaxBatch)
	if err != nil {
		return false, err
	}
	if m.sum, m.after = m.sum+size.Bytes, size.Last; size.More {
		return false, nil
	}
	q.remeasure(m.mark, m.sum)
	m.left = m.left[1:]
	m.begin()
	return len(m.left) == 0, nil
}

// begin begins with the next of what is left.
func (m *measuring) begin() {
	m.after, m.sum = reservation.Address{}, 0
	if len(m.left) > 0 {
		m.mark = m.left[0].addedSoFar()
	}
}

// recordBytes is about what a record takes beside its result.
const recordBytes = 512

// stores is what a call has added to what is stored: about as much as will be measured.
func stores(c *call) int64 {
	var result *reservation.Result
	switch command := c.command.(type) {
	case *reservation.Reserve:
		if owned, is := c.outcome.(*reservation.Owned); is && !owned.Repeated && owned.Attempt == 1 {
			return recordBytes
		}
		return 0
	case *reservation.Complete:
		if result = &command.Result; command.DropBody {
			return 0
		}
	case *reservation.Fail:
		if result = &command.Result; command.DropBody {
			return 0
		}
	}
	recorded, is := c.outcome.(*reservation.Recorded)
	if !is || recorded.Repeated || result == nil {
		return 0
	}
	size := len(result.Body)
	for _, h := range result.Headers {
		size += len(h.Name) + len(h.Value)
	}
	return int64(size)
}

// stored counts what this daemon has added.
func (q *quota) stored(bytes int64) {
	if q.limits.StoredBytes == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.added += bytes
}

func (q *quota) addedSoFar() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.added
}

// remeasure takes what was measured since the mark.
func (q *quota) remeasure(mark, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.measured, q.added = bytes, q.added-mark
}

package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// The bounds of the queue and of a batch.
const (
	maxQueued      = 8192
	maxQueuedBytes = 256 << 20
	maxBatchBytes  = 4 << 20
	overloadRetry  = 250 * time.Millisecond
	drainRetry     = 500 * time.Millisecond
)

// call is one command and whoever waits for it.
type call struct {
	ctx     context.Context
	command reservation.Command
	size    int
	outcome reservation.Outcome // nil = it was dropped
	done    signal              // once outcome is set, or it is dropped

	// then is the same caller's next command on the same address: they stay together, so
	// that they are applied in order. What follows is of the first of such a chain.
	then   *call
	busy   int       // how often a rival held the address
	heldAt time.Time // when it first did
}

// signal tells a caller that its calls are answered.
type signal interface{ one() }

// alone is the signal of a lone call.
type alone chan struct{}

func (a alone) one() { close(a) }

func newCall(ctx context.Context, command reservation.Command, done signal) *call {
	return &call{ctx: ctx, command: command, size: sizeOf(command), done: done}
}

// chain is a call and what stays with it.
func (c *call) chain(yield func(*call) bool) {
	for ; c != nil && yield(c); c = c.then {
	}
}

// extent is the number and the size of a chain's commands.
func (c *call) extent() (n, size int) {
	for link := range c.chain {
		n++
		size += link.size
	}
	return n, size
}

// sizeOf estimates the memory that a queued command holds on to, in bytes.
func sizeOf(command reservation.Command) int {
	const fixed = 512
	switch c := command.(type) {
	case *reservation.Extend:
		return fixed + len(c.Checkpoint)
	case *reservation.Complete:
		return fixed + sizeOfResult(&c.Result)
	case *reservation.Fail:
		return fixed + sizeOfResult(&c.Result)
	case *reservation.Resolve:
		return fixed + sizeOfResult(c.Result)
	}
	return fixed
}

func sizeOfResult(r *reservation.Result) int {
	if r == nil {
		return 0
	}
	return len(r.Body) + reservation.MaxHeaderBytes*min(1, len(r.Headers))
}

// queue holds what arrives while batches are under way. There are no timers in it: a
// lone call goes at once, and a batch is as large as what gathered meanwhile.
type queue struct {
	mu      sync.Mutex
	arrived sync.Cond // waiting gained a call, or closed
	waiting []*call
	// held are the calls whose addresses rivals hold. They have a writer of their own:
	// what one of them waits for, the others don't.
	held     []*call
	heldCame sync.Cond
	pending  int // calls added and not yet answered
	size     int // bytes of those
	draining bool
	closed   bool
	idle     chan struct{} // closed when draining and nothing is pending

	writers sync.WaitGroup
}

func newQueue() *queue {
	q := &queue{idle: make(chan struct{})}
	q.arrived.L, q.heldCame.L = &q.mu, &q.mu
	return q
}

// add queues a call and what stays with it.
func (q *queue) add(c *call) *reservation.Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := c.extent()
	switch {
	case q.draining:
		return draining()
	case q.pending >= maxQueued || q.size+size > maxQueuedBytes:
		return &reservation.Error{
			Reason: reservation.Overloaded, RetryAfter: overloadRetry,
			Message: "too many calls are waiting for the store (at most 8192, and 256 MiB)",
		}
	}
	q.pending += n
	q.size += size
	q.waiting = append(q.waiting, c)
	q.arrived.Signal()
	return nil
}

func draining() *reservation.Error {
	return &reservation.Error{
		Reason: reservation.Draining, RetryAfter: drainRetry,
		Message: "this daemon is shutting down; retry with the same owner token, at another one",
	}
}

// again queues a call whose address a rival held, after a pause that grows.
func (q *queue) again(c *call) {
	if c.busy++; c.busy == 1 {
		c.heldAt = time.Now()
	}
	pause := min(time.Millisecond<<min(c.busy-1, 6), 50*time.Millisecond)
	time.AfterFunc(pause, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.held = append(q.held, c)
		q.heldCame.Signal()
	})
}

// take waits for calls and takes a batch of them; nil once the queue is closed.
func (q *queue) take() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) == 0 && !q.closed {
		q.arrived.Wait()
	}
	batch := cut(&q.waiting)
	if len(q.waiting) > 0 {
		q.arrived.Signal()
	}
	return batch
}

// takeHeld waits for calls that have paused and takes a batch of them; nil once the
// queue is closed.
func (q *queue) takeHeld() []*call {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.held) == 0 && !q.closed {
		q.heldCame.Wait()
	}
	return cut(&q.held)
}

// cut takes the first calls, as many as make a batch. A chain is never larger than one.
func cut(calls *[]*call) []*call {
	n, commands, size := 0, 0, 0
	for ; n < len(*calls); n++ {
		count, bytes := (*calls)[n].extent()
		if n > 0 && (commands+count > store.MaxBatch || size+bytes > maxBatchBytes) {
			break
		}
		commands += count
		size += bytes
	}
	batch := slices.Clone((*calls)[:n])
	*calls = slices.Delete(*calls, 0, n)
	return batch
}

// answered notes that calls are answered, or dropped.
func (q *queue) answered(n, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending -= n
	q.size -= size
	q.noteIdle()
}

func (q *queue) noteIdle() {
	if !q.draining || q.pending > 0 {
		return
	}
	select {
	case <-q.idle:
	default:
		close(q.idle)
	}
}

func (q *queue) drain(ctx context.Context) error {
	q.mu.Lock()
	q.draining = true
	q.noteIdle()
	q.mu.Unlock()
	select {
	case <-q.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.arrived.Broadcast()
	q.heldCame.Broadcast()
	q.writers.Wait()
}

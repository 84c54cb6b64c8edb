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

	// Room for tenants that hold little, beyond those bounds.
	extraQueued = 1024
	extraBytes  = 32 << 20
	fewQueued   = 64
	fewBytes    = 4 << 20
)

// call is one command and whoever waits for it.
type call struct {
	ctx     context.Context
	command reservation.Command
	size    int
	outcome reservation.Outcome // nil = it was dropped
	done    signal              // once outcome is set, or it is dropped
	// entered are the quotas that count it while it is under way.
	entered [2]*quota

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
	arrived sync.Cond // lanes gained a call, or closed
	lanes   lanes
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
	q := &queue{idle: make(chan struct{}), lanes: lanes{of: make(map[string]*lane)}}
	q.arrived.L, q.heldCame.L = &q.mu, &q.mu
	return q
}

// add queues a call and what stays with it.
func (q *queue) add(c *call) *reservation.Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, size := c.extent()
	if q.draining {
		return draining()
	}
	tenant := c.command.Target().Tenant
	if refusal := q.room(q.lanes.of[tenant], n, size); refusal != nil {
		return refusal
	}
	q.pending += n
	q.size += size
	q.lanes.add(tenant, c, n, size)
	q.arrived.Signal()
	return nil
}

// depth is how many calls are added and not answered.
func (q *queue) depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pending
}

// room refuses what the queue can't take. One tenant may fill it while it is alone, but
// keeps nobody else out: others who hold little find room beyond its bound, and while
// they are there it gets no more than half.
func (q *queue) room(own *lane, n, size int) *reservation.Error {
	if own == nil {
		own = &lane{}
	}
	bound, bytes := maxQueued, maxQueuedBytes
	if own.pending+n <= fewQueued && own.size+size <= fewBytes {
		bound, bytes = bound+extraQueued, bytes+extraBytes
	}
	switch {
	case q.pending >= bound || q.size+size > bytes:
		return overloaded("too many calls are waiting for the store (at most 8192, and 256 MiB)")
	case q.pending > own.pending && (own.pending+n > maxQueued/2 || own.size+size > maxQueuedBytes/2):
		return overloaded("this tenant has too many calls waiting for the store (at most 4096, and 128 MiB, while other tenants wait too)")
	}
	return nil
}

func overloaded(message string) *reservation.Error {
	return &reservation.Error{Reason: reservation.Overloaded, RetryAfter: overloadRetry, Message: message}
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
	for len(q.lanes.ring) == 0 && !q.closed {
		q.arrived.Wait()
	}
	batch := q.lanes.cut()
	if len(q.lanes.ring) > 0 {
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

// cut takes the first calls, as many as make a batch.
func cut(calls *[]*call) []*call {
	var b load
	n := 0
	for n < len(*calls) && b.takes((*calls)[n]) {
		n++
	}
	batch := slices.Clone((*calls)[:n])
	*calls = slices.Delete(*calls, 0, n)
	return batch
}

// load is how full a batch is.
type load struct{ commands, size int }

// takes adds a call and what stays with it, if it fits. A chain is never larger than a
// batch, so that the first one does.
func (b *load) takes(c *call) bool {
	n, size := c.extent()
	if b.commands > 0 && (b.commands+n > store.MaxBatch || b.size+size > maxBatchBytes) {
		return false
	}
	b.commands += n
	b.size += size
	return true
}

// answered notes that calls, and what stays with them, are answered, or dropped.
func (q *queue) answered(calls []*call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range calls {
		n, size := c.extent()
		q.pending -= n
		q.size -= size
		q.lanes.answered(c.command.Target().Tenant, n, size)
	}
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

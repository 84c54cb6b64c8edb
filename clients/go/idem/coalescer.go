package idem

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Bounds of what is joined.
const (
	// maxSingles is how many calls are under way on their own before others are joined.
	maxSingles = 1
	// maxFlights is how many batches are under way.
	maxFlights = 4
	// maxJoined and maxJoinedBytes are what the daemon takes as one batch, less the tag and
	// the length before each command.
	maxJoined      = 1000
	maxJoinedBytes = 4<<20 - maxJoined*8
)

// coalescer sends calls together that come while others are under way. Nobody waits for
// company: what comes first goes at once and on its own, what comes meanwhile is the next
// batch, first come first. It repeats nothing: each call's caller does.
type coalescer struct {
	idemdv1.IdempotencyServiceClient // single calls

	mu      sync.Mutex
	queue   []*joined
	singles int // calls under way on their own
	flights int // goroutines that send batches
	// unknown: the daemon is older than Batch.
	unknown bool
}

// joined is one call that is sent with others.
type joined struct {
	ctx     context.Context
	encoded []byte  // its BatchCommand
	flight  *flight // nil = it is in the queue; guarded by coalescer.mu

	done    chan struct{} // closed once one of these is set
	outcome *idemdv1.BatchOutcome
	err     error
	single  bool // it has to be sent on its own
}

// flight is one batch under way.
type flight struct {
	left   int // calls whose callers are there still; guarded by coalescer.mu
	cancel context.CancelFunc
}

// goesAlone tells whether a call has no company; landed is to be called when it has ended.
func (c *coalescer) goesAlone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unknown && (c.singles >= maxSingles || len(c.queue) > 0) {
		return false
	}
	c.singles++
	return true
}

// landed notes that a call on its own has ended.
func (c *coalescer) landed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.singles--
}

// join queues a call. If there can be another batch under way, it is sent at once.
func (c *coalescer) join(call *joined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, call)
	if c.flights < maxFlights {
		c.flights++
		go c.fly()
	}
}

// leave notes that a caller has gone. When all of a batch's have, it is given up.
func (c *coalescer) leave(call *joined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := call.flight; f != nil {
		if f.left--; f.left == 0 {
			f.cancel()
		}
	}
}

// fly sends one batch after the other, until nothing waits.
func (c *coalescer) fly() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		calls := c.take(cancel)
		if len(calls) > 0 {
			c.send(ctx, calls)
		}
		cancel()
		if len(calls) == 0 {
			return
		}
	}
}

// take takes from the queue what makes a batch. What nobody waits for any more is left
// out. If there is nothing, the flight is over.
func (c *coalescer) take(cancel context.CancelFunc) (calls []*joined) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &flight{cancel: cancel}
	size, n := 0, 0
	for ; n < len(c.queue) && len(calls) < maxJoined; n++ {
		call := c.queue[n]
		if call.ctx.Err() != nil {
			continue
		}
		if size += len(call.encoded); size > maxJoinedBytes {
			break
		}
		call.flight = f
		calls = append(calls, call)
	}
	clear(c.queue[:n])
	if c.queue = c.queue[n:]; len(c.queue) == 0 {
		c.queue = nil
	}
	if f.left = len(calls); f.left == 0 {
		c.flights--
	}
	return calls
}

// send sends a batch and tells each call what became of it.
func (c *coalescer) send(ctx context.Context, calls []*joined) {
	response, err := c.Batch(ctx, requestOf(calls))
	whole := false // the batch is refused, not its commands
	switch {
	case status.Code(err) == codes.Unimplemented:
		whole = true
		c.mu.Lock()
		c.unknown = true
		c.mu.Unlock()
	case err != nil:
		whole = errorOf(err).Reason == BatchInvalid
	case len(response.GetOutcomes()) != len(calls):
		err = status.Error(codes.Internal, "idem: a batch was answered by another number of outcomes")
	}
	for i, call := range calls {
		switch {
		case whole:
			call.single = true
		case err != nil:
			call.err = err
		default:
			call.outcome = response.GetOutcomes()[i]
		}
		close(call.done)
	}
}

// requestOf is a BatchRequest of commands that are encoded already: as fields that the
// message has not looked at, which are sent as they are.
func requestOf(calls []*joined) *idemdv1.BatchRequest {
	const commands = protowire.Number(1)
	size := 0
	for _, call := range calls {
		size += protowire.SizeTag(commands) + protowire.SizeBytes(len(call.encoded))
	}
	encoded := make([]byte, 0, size)
	for _, call := range calls {
		encoded = protowire.AppendTag(encoded, commands, protowire.BytesType)
		encoded = protowire.AppendBytes(encoded, call.encoded)
	}
	request := &idemdv1.BatchRequest{}
	request.ProtoReflect().SetUnknown(encoded)
	return request
}

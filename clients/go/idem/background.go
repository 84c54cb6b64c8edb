package idem

import (
	"context"
	"sync"
	"time"
)

const (
	// maxOutcomes bounds how many outcomes, with their results, are told in the
	// background at once.
	maxOutcomes = 1024
	// maxWithdrawals bounds how many Reserves are given up there at once: as many as a
	// daemon lets wait, for all who wait may hang up together. Each takes some 6.5 KiB.
	maxWithdrawals = 20_000
	// backgroundTimeout bounds how long one thing is told there.
	backgroundTimeout = 2 * time.Minute
)

// room is how much there is of one kind in the background, and may be.
type room struct{ taken, most int }

// background runs what outlives the call that it belongs to, bounded in number and time.
// Each kind has a room of its own: withdrawals, which come in crowds, push out no outcome.
type background struct {
	ctx    context.Context // ends when the client is closed by force
	cancel context.CancelFunc

	mu                    sync.Mutex
	outcomes, withdrawals room
	closed                bool
	idle                  chan struct{} // closed once nothing runs and nothing will
}

func newBackground() *background {
	ctx, cancel := context.WithCancel(context.Background())
	return &background{
		ctx: ctx, cancel: cancel, outcomes: room{most: maxOutcomes}, withdrawals: room{most: maxWithdrawals}, idle: make(chan struct{}),
	}
}

// start runs work, of the kind that a room is for, with the values of ctx, but not its
// end. It is false if the room is full or the client closed: the work is not done.
func (b *background) start(ctx context.Context, r *room, work func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || r.taken >= r.most {
		return false
	}
	r.taken++
	go func() {
		defer b.done(r)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTimeout)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		work(ctx)
	}()
	return true
}

func (b *background) done(r *room) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.taken--
	b.endIfIdle()
}

// endIfIdle is called under the lock, each time a room or closed changes.
func (b *background) endIfIdle() {
	if b.closed && b.outcomes.taken+b.withdrawals.taken == 0 {
		close(b.idle)
	}
}

func (b *background) close(ctx context.Context) error {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		b.endIfIdle()
	}
	b.mu.Unlock()
	defer b.cancel()
	select {
	case <-b.idle:
		return nil
	case <-ctx.Done():
		b.cancel()
		<-b.idle
		return ctx.Err()
	}
}

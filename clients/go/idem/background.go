package idem

import (
	"context"
	"sync"
	"time"
)

const (
	// maxBackground bounds what is told in the background at once.
	maxBackground = 1024
	// backgroundTimeout bounds how long one thing is told there.
	backgroundTimeout = 2 * time.Minute
)

// background runs what outlives the call that it belongs to, bounded in number and time.
type background struct {
	ctx    context.Context // ends when the client is closed by force
	cancel context.CancelFunc

	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed once nothing runs and nothing will
}

func newBackground() *background {
	ctx, cancel := context.WithCancel(context.Background())
	return &background{ctx: ctx, cancel: cancel, idle: make(chan struct{})}
}

// start runs work with the values of ctx, but not its end. It is false if too much runs
// already, or the client is closed: the work is not done.
func (b *background) start(ctx context.Context, work func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.running >= maxBackground {
		return false
	}
	b.running++
	go func() {
		defer b.done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backgroundTimeout)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		work(ctx)
	}()
	return true
}

func (b *background) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	b.endIfIdle()
}

// endIfIdle is called under the lock, each time running or closed changes.
func (b *background) endIfIdle() {
	if b.closed && b.running == 0 {
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

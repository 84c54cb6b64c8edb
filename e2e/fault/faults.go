package fault

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// On applies a fault to the calls of one method.
func On(method string, f Fault) Fault {
	return func(ctx context.Context, called string, forward Forward) ([]byte, error) {
		if called != method {
			return forward(ctx)
		}
		return f(ctx, called, forward)
	}
}

// Times applies a fault to the first n calls that it is asked about.
func Times(n int64, f Fault) Fault {
	var seen atomic.Int64
	return func(ctx context.Context, method string, forward Forward) ([]byte, error) {
		if seen.Add(1) > n {
			return forward(ctx)
		}
		return f(ctx, method, forward)
	}
}

// LoseAnswer lets the server execute the call, whatever its caller does, and loses the
// answer.
func LoseAnswer(ctx context.Context, _ string, forward Forward) ([]byte, error) {
	_, _ = forward(context.WithoutCancel(ctx))
	return nil, ErrLost()
}

// LoseRequest loses the call before the server hears of it.
func LoseRequest(context.Context, string, Forward) ([]byte, error) { return nil, ErrLost() }

// Twice sends the call two times at once and returns the answer that comes first; the
// other one has come too.
func Twice(ctx context.Context, _ string, forward Forward) ([]byte, error) {
	var once sync.Once
	var answer []byte
	var err error
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			a, e := forward(ctx)
			once.Do(func() { answer, err = a, e })
		})
	}
	both.Wait()
	return answer, err
}

// DelayAnswer has the server execute the call at once and hands out the answer later.
func DelayAnswer(d time.Duration) Fault {
	return func(ctx context.Context, _ string, forward Forward) ([]byte, error) {
		answer, err := forward(ctx)
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return answer, err
	}
}

// DelayRequest hands the call to the server later, also where its caller has left
// meanwhile: a packet that lies around in a network.
func DelayRequest(d time.Duration) Fault {
	return func(ctx context.Context, _ string, forward Forward) ([]byte, error) {
		<-time.After(d)
		return forward(context.WithoutCancel(ctx))
	}
}

package idem

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	// callTimeout is when one call, beyond what it asked to be held, counts as lost.
	callTimeout = 5 * time.Second

	// leastTimeout is what a call is given, however short the patience is.
	leastTimeout = 500 * time.Millisecond

	// forever is the patience of what its context alone bounds.
	forever = time.Duration(1<<63 - 1)

	// brokenTries bounds how often in a row what is no answer of the daemon's is tried.
	brokenTries = 3

	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// persist makes a call until it is answered: again, with growing pauses, while the
// daemon is unavailable or silent, until ctx ends or it has been so for as long as the
// patience lasts. What may be no answer of the daemon's is tried brokenTries times in a
// row.
func persist(ctx context.Context, patience, timeout time.Duration, call func(context.Context) error) *Error {
	broken := 0
	return repeat(ctx, patience, timeout, call, func(err *Error) bool {
		if err.transient() {
			broken = 0
			return true
		}
		broken++
		return err.broken() && broken < brokenTries
	})
}

// insist makes a call until idemd itself has answered it, or ctx ends: for what must be
// told. What a proxy or a broken connection says instead, with whatever code, is no end.
func insist(ctx context.Context, call func(context.Context) error) *Error {
	return repeat(ctx, forever, callTimeout, call, func(err *Error) bool { return err.Reason == "" || err.transient() })
}

// repeat makes a call again, with growing pauses, as long as its error is worth it, ctx
// has not ended and it has not failed for longer than the patience. A timeout beyond
// callTimeout is for calls that the daemon holds.
func repeat(
	ctx context.Context, patience, timeout time.Duration, call func(context.Context) error, worthIt func(*Error) bool,
) *Error {
	var (
		failing time.Time
		last    *Error
		held    = timeout > callTimeout
	)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		sent, limit := time.Now(), timeout
		if !held { // a silent daemon takes no longer than the patience
			left := patience
			if !failing.IsZero() {
				left -= sent.Sub(failing)
			}
			limit = min(limit, max(left, leastTimeout))
		}
		one, cancel := context.WithTimeout(ctx, limit)
		err := errorOf(call(one))
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && err.Reason == "":
			return endedBy(ctx, last)
		case !worthIt(err):
			return err
		}
		if last = err; failing.IsZero() {
			failing = sent
			if held { // that was no failure
				failing = time.Now()
			}
		}
		delay := jittered(max(pause, err.RetryAfter))
		if time.Since(failing)+delay > patience {
			return err
		}
		if !sleep(ctx, delay) {
			return endedBy(ctx, err)
		}
	}
}

// transient: the same call can have another answer soon.
func (e *Error) transient() bool {
	return e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded || e.RetryAfter > 0
}

// broken: a stream that broke, or what a proxy says; but also a message that can't be
// sent at all.
func (e *Error) broken() bool {
	return e.Reason == "" && (e.Code == codes.Canceled || e.Code == codes.Internal || e.Code == codes.Unknown)
}

// decided: the call was looked at, and has changed nothing.
func (e *Error) decided() bool {
	switch e.Code {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
		return true
	}
	return false
}

// jittered lengthens a pause by up to a quarter: never earlier than asked for, and not
// all at once.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/4+1) }

// sleep is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

package idem

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const (
	// leaseMargin is the part of a lease (1/10) that the client does not count on: its
	// clock may be slower than the store's by that much, and the function needs time to
	// notice that its context has ended.
	leaseMargin = 10
	// leaseRenewal is the part of a lease (1/3) after which it is extended.
	leaseRenewal = 3
)

// lease is what an owner believes: never longer than what the store grants. It counts
// on the monotonic clock from when the request was sent, for the store may have
// decided right then.
type lease struct {
	sent   time.Time
	length time.Duration
}

func (l lease) end() time.Time     { return l.sent.Add(l.length - l.length/leaseMargin) }
func (l lease) renewAt() time.Time { return l.sent.Add(l.length / leaseRenewal) }

// keeper keeps the lease of one attempt alive, and ends the function's context when it
// can't.
type keeper struct {
	attempt *attempt
	asked   *durationpb.Duration // nil = the namespace's policy

	mu         sync.Mutex
	lease      lease
	capped     bool // it can't be extended any more
	over       bool
	sequence   uint64 // of the last checkpoint that was sent
	stored     uint64 // of the last checkpoint that was stored
	progress   []byte // that checkpoint
	decisionID string // see Grant.SetDecisionID
	endContext context.CancelCauseFunc
	expiry     *time.Timer
	loop       *time.Timer // starts run, which most functions end before
	stopLoop   context.CancelFunc
	stopped    chan struct{}
}

// start keeps the lease until stop. The function's context, which it returns, ends
// before the lease does.
func (k *keeper) start(ctx context.Context) context.Context {
	// The caller may be gone while the function is still at work.
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, end := context.WithCancelCause(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.endContext, k.stopLoop, k.stopped = end, stop, make(chan struct{})
	k.expiry = time.AfterFunc(time.Until(k.lease.end()), k.expire)
	k.loop = time.AfterFunc(time.Until(k.lease.renewAt()), func() { k.run(loop) })
	return ctx
}

func (k *keeper) stop() {
	k.mu.Lock()
	k.over = true
	k.expiry.Stop()
	k.mu.Unlock()
	k.stopLoop()
	if !k.loop.Stop() {
		<-k.stopped
	}
	k.endContext(nil)
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.stopped)
	pause := firstPause
	for sleep(ctx, time.Until(k.renewal())) {
		err := k.extend(ctx, forever, nil, 0)
		switch {
		case err == nil && k.atCap():
			return // what is left is left
		case err == nil:
			pause = firstPause
		case err.Reason == LeaseCapReached:
			return
		case err.leaseLost():
			k.lose(err)
			return
		default:
			if !sleep(ctx, jittered(pause)) {
				return
			}
			pause = min(2*pause, lastPause)
		}
	}
}

func (k *keeper) renewal() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease.renewAt()
}

func (k *keeper) atCap() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.capped
}

// leaseLost: the attempt is not this owner's any more.
func (e *Error) leaseLost() bool {
	return e.Reason == StaleToken || e.Reason == AlreadyFinished || e.Reason == ReservationNotFound
}

// extend renews the lease; a late reply counts from when its request was sent.
func (k *keeper) extend(ctx context.Context, patience time.Duration, checkpoint []byte, sequence uint64) *Error {
	request := &idemdv1.ExtendRequest{
		Tenant: k.attempt.address.Tenant, Namespace: k.attempt.address.Namespace, Key: k.attempt.address.Key,
		OwnerToken: k.attempt.token, Lease: k.asked, Checkpoint: checkpoint, CheckpointSequence: sequence,
	}
	var (
		sent     time.Time
		response *idemdv1.ExtendResponse
	)
	err := persist(ctx, patience, k.timeout(), func(ctx context.Context) (err error) {
		sent = time.Now()
		response, err = k.attempt.c.service.Extend(ctx, request)
		return err
	})
	if err == nil {
		k.adopt(lease{sent, response.GetLeaseRemaining().AsDuration()}, response.GetClamped())
	}
	return err
}

// timeout leaves every lease time for a second try: one lost answer must not lose it.
func (k *keeper) timeout() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return min(callTimeout, k.lease.length/4)
}

// adopt takes a renewed lease. The store never shortens one, so of two answers that
// overtook each other the longer one holds.
func (k *keeper) adopt(l lease, capped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.capped = k.capped || capped
	if k.over || !l.end().After(k.lease.end()) {
		return
	}
	k.lease = l
	if k.expiry != nil {
		k.expiry.Reset(time.Until(l.end()))
	}
}

// expire runs when the lease is over, if it was not renewed at this very moment.
func (k *keeper) expire() { k.lose(nil) }

// lose ends the function's context, once; refusal says why, or is nil where time ran out.
func (k *keeper) lose(refusal *Error) {
	k.mu.Lock()
	if k.over || refusal == nil && time.Until(k.lease.end()) > 0 {
		k.mu.Unlock()
		return
	}
	k.over = true
	k.mu.Unlock()
	k.expiry.Stop()
	k.stopLoop()
	cause := leaseLostBy(refusal)
	k.endContext(cause)
	k.attempt.leaseLost(cause)
}

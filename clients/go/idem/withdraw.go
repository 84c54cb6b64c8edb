package idem

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// errBusy: what should be told in the background was dropped.
var errBusy = errors.New("idem: too much is being told in the background, or the client is closed")

// withdraw gives up, in the background, a Reserve that ended without an answer: if it
// was granted, its key would be held until the lease is over, and unresolved after that.
func (g *guard) withdraw(ctx context.Context) {
	a := attempt{c: g.c, address: g.address, token: g.request.GetOwnerToken()}
	started := g.c.background.start(ctx, &g.c.background.withdrawals, func(ctx context.Context) {
		if err := a.withdraw(ctx); err != nil {
			a.withdrawn(ctx, err)
			return
		}
		a.withdrawn(ctx, nil)
	})
	if !started {
		a.withdrawn(ctx, errBusy)
	}
}

func (a *attempt) withdrawn(ctx context.Context, err error) {
	if err != nil {
		a.warn(ctx, "a reservation that got no answer could not be given up; if it was granted it is held until its lease is over", err)
	}
	if hook := a.c.options.Hooks.Withdrawn; hook != nil {
		hook(a.address, err)
	}
}

// withdraw asks with an Extend whether the token owns an attempt: unlike a Fail, it
// leaves no evidence in another owner's record where it does not. "No" is asked again,
// for the Reserve may still be on its way; not all at once where many have hung up together.
func (a *attempt) withdraw(ctx context.Context) *Error {
	const least = 100 * time.Millisecond // the shortest lease: it never shortens what is left
	request := &idemdv1.ExtendRequest{
		Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key,
		OwnerToken: a.token, Lease: durationpb.New(least),
	}
	for _, pause := range []time.Duration{0, 250 * time.Millisecond, time.Second, 3 * time.Second} {
		if !sleep(ctx, jittered(pause)) {
			return endedBy(ctx, nil)
		}
		err := insist(ctx, func(ctx context.Context) error {
			_, err := a.c.service.Extend(ctx, request)
			return err
		})
		switch {
		case err == nil:
			_, err = a.record(ctx, outcome{failed: idemdv1.FailureKind_FAILURE_KIND_RETRYABLE})
			return err
		case err.Reason == AlreadyFinished, err.Reason == LeaseCapReached:
			return nil
		case err.Reason != ReservationNotFound && err.Reason != StaleToken:
			return err
		}
	}
	return nil
}

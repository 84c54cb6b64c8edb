package idem

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// told is what the daemon said to an outcome.
type told struct {
	version int64
	expires time.Time
	// final: it was the last attempt allowed, and what could have been repeated is over.
	final bool
}

// tell records how the attempt ended, whether the caller is still there or not. If that
// takes longer than Options.FinishTimeout, it goes on in the background.
func (a *attempt) tell(ctx context.Context, o outcome) (told, error) {
	return a.tellWithin(ctx, a.c.options.FinishTimeout, o)
}

func (a *attempt) tellWithin(ctx context.Context, limit time.Duration, o outcome) (told, error) {
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	t, err := a.record(short, o)
	switch {
	case err == nil:
		return t, nil
	case err.ended != nil:
		if late := a.tellLater(ctx, o); late != nil {
			return told{}, late
		}
		err.Message = "not recorded yet, told on in the background: " + err.Message
	default:
		a.unrecorded(ctx, err)
	}
	return told{}, err
}

// tellLater records the outcome in the background; the error says that not even that
// is possible.
func (a *attempt) tellLater(ctx context.Context, o outcome) error {
	o.result = proto.CloneOf(o.result) // Do returns the other one, and its caller may change it
	started := a.c.background.start(ctx, &a.c.background.outcomes, func(ctx context.Context) {
		if _, err := a.record(ctx, o); err != nil {
			a.unrecorded(ctx, err)
		}
	})
	if !started {
		a.unrecorded(ctx, errBusy)
		return errBusy
	}
	return nil
}

func (a *attempt) unrecorded(ctx context.Context, err error) {
	a.warn(ctx, "how the operation ended could not be recorded", err)
	if hook := a.c.options.Hooks.Unrecorded; hook != nil {
		hook(a.address, err)
	}
}

func (a *attempt) reduced(ctx context.Context, err error) {
	a.warn(ctx, "the result could not be kept whole", err)
	if hook := a.c.options.Hooks.Reduced; hook != nil {
		hook(a.address, err)
	}
}

// record sends the outcome until idemd has answered or ctx ends. What is refused of its
// result is left out, for a done operation must not run again because its answer was big,
// or had a header that is none.
func (a *attempt) record(ctx context.Context, o outcome) (told, *Error) {
	var t told
	if valid := sendable(o.result); valid != o.result {
		a.reduced(ctx, errNotUTF8)
		o.result = valid
	}
	err := insist(ctx, func(ctx context.Context) (err error) {
		for {
			if t, err = a.send(ctx, o); err == nil {
				return nil
			}
			less := reduced(o.result, errorOf(err))
			if less == nil {
				return err
			}
			a.reduced(ctx, err)
			o.result = less
		}
	})
	return t, err
}

func (a *attempt) send(ctx context.Context, o outcome) (told, error) {
	if o.failed == idemdv1.FailureKind_FAILURE_KIND_UNSPECIFIED {
		r, err := a.c.service.Complete(ctx, &idemdv1.CompleteRequest{
			Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key, OwnerToken: a.token,
			Result: o.result,
		})
		return told{version: r.GetVersion(), expires: timeOf(r.GetExpiresAt())}, err
	}
	r, err := a.c.service.Fail(ctx, &idemdv1.FailRequest{
		Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key, OwnerToken: a.token,
		Kind: o.failed, Result: o.result,
	})
	return told{r.GetVersion(), timeOf(r.GetExpiresAt()), r.GetState() == idemdv1.State_STATE_FAILED_FINAL}, err
}

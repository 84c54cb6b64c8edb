package idem

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// told is what the daemon said to an outcome.
type told struct {
	version int64
	expires time.Time
}

// tell records how the attempt ended, whether the caller is still there or not. If that
// takes longer than Options.FinishTimeout, it goes on in the background.
func (a *attempt) tell(ctx context.Context, o outcome) (told, error) {
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.c.options.FinishTimeout)
	defer cancel()
	t, err := a.record(short, o)
	switch {
	case err == nil:
		return t, nil
	case err.transient():
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
	started := a.c.background.start(ctx, func(ctx context.Context) {
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

// record sends the outcome until it is answered or ctx ends. What is too large is left
// out, for a done operation must not run again because its answer was big.
func (a *attempt) record(ctx context.Context, o outcome) (told, *Error) {
	for {
		var t told
		err := persist(ctx, forever, callTimeout, func(ctx context.Context) (err error) {
			t, err = a.send(ctx, o)
			return err
		})
		if err == nil || !err.tooLarge() {
			return t, err
		}
		smaller := shrunk(o.result, err)
		if smaller == nil {
			return t, err
		}
		a.warn(ctx, "the result was too large to be kept whole", err)
		o.result = smaller
	}
}

func (a *attempt) send(ctx context.Context, o outcome) (told, error) {
	if o.failed == idemdv1.FailureKind_FAILURE_KIND_UNSPECIFIED {
		r, err := a.c.service.Complete(ctx, &idemdv1.CompleteRequest{
			Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key, OwnerToken: a.token,
			Result: o.result,
		})
		return told{r.GetVersion(), timeOf(r.GetExpiresAt())}, err
	}
	r, err := a.c.service.Fail(ctx, &idemdv1.FailRequest{
		Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key, OwnerToken: a.token,
		Kind: o.failed, Result: o.result,
	})
	return told{r.GetVersion(), timeOf(r.GetExpiresAt())}, err
}

// tooLarge: idemd's own limit, or one of gRPC's on the way.
func (e *Error) tooLarge() bool {
	return e.Reason == ResultTooLarge || e.Reason == "" && e.Code == codes.ResourceExhausted
}

// shrunk leaves out what was refused as too large: the headers if it was them, else the
// body, and then the headers too. Nil: there is nothing left to leave out.
func shrunk(r *Result, refusal *Error) *Result {
	headers := strings.HasPrefix(refusal.Metadata["field"], "result.headers")
	if len(r.GetBody()) == 0 {
		headers = true
	}
	if headers && len(r.GetHeaders()) == 0 {
		return nil
	}
	small := proto.CloneOf(r)
	if headers {
		small.Headers = nil
	} else {
		small.Body, small.BodyOmitted = nil, true
	}
	return small
}

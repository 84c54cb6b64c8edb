package idem

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const (
	// maxWait is how long the daemon holds one Reserve.
	maxWait = 50 * time.Second
	// maxRounds bounds how often one Do looks anew, because the record has changed
	// while it was about to act on it.
	maxRounds = 16
)

// Func is the effect. Its context is cancelled when the caller's is, and with the cause
// ErrLeaseLost before the lease is over. What its result and error mean: docs/client.md.
type Func = func(context.Context, *Grant) (*Result, error)

// Do makes fn happen once for the operation's key. It returns the answer of fn, or that
// of the earlier call which has finished the operation (Answer.Replayed), and waits
// while another owner is on it.
//
// Errors: *FinalError (refused for good), *NotExecutedError (certainly not done: repeat
// with the same key), *UnresolvedError (may have been done: find out),
// *InProgressError (another owner is still on it), *Error (a refusal, or no answer of
// the daemon within Options.Patience: fn was not run). [KeepKey] says what to do with
// the key. When the daemon can't be reached, fn is not run.
//
// A panic of fn is recorded as an unknown outcome and goes on. A nil fn panics.
func (c *Client) Do(ctx context.Context, op Operation, fn Func) (*Answer, error) {
	if fn == nil {
		panic("idem: Do without a function")
	}
	g := c.newGuard(op)
	if err := g.within(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if g.doubt {
			g.withdraw(ctx)
		}
	}()
	return g.do(ctx, fn)
}

// guard is one Do.
type guard struct {
	c       *Client
	op      Operation
	address Address
	// request is what is asked again and again, with the token that it holds.
	request   *idemdv1.ReserveRequest
	waitUntil time.Time
	// held: the daemon may hold the call.
	held bool
	// sent is when the last Reserve was sent.
	sent time.Time
	// doubt: a Reserve has ended without an answer, and may have been, or still be,
	// granted.
	doubt bool
	// pending is the last answer, if it was "in progress".
	pending *InProgressError
}

// newGuard takes what belongs to the operation before fn can change anything.
func (c *Client) newGuard(op Operation) *guard {
	now := time.Now()
	g := &guard{c: c, op: op, address: c.Address(op), waitUntil: now.Add(op.waits())}
	first := op.FirstAttemptAt
	if first.IsZero() {
		first = now
	}
	g.request = &idemdv1.ReserveRequest{
		Tenant: g.address.Tenant, Namespace: g.address.Namespace, Key: g.address.Key,
		Fingerprint: &idemdv1.Fingerprint{Scheme: op.Fingerprint.Scheme, Digest: bytes.Clone(op.Fingerprint.Digest)},
		OwnerToken:  NewToken(), Lease: durationOf(op.Lease), Retention: durationOf(op.Retention),
		OnLapse: op.Mode.onLapse(), Owner: c.options.Owner, PolicyVersion: op.PolicyVersion,
		FirstAttemptAt: timestamppb.New(first),
	}
	return g
}

// within refuses an operation inside itself, which would wait for its own end.
func (g *guard) within(ctx context.Context) error {
	around, is := GrantFrom(ctx)
	if !is || around.Tenant != g.address.Tenant || around.Key != g.address.Key || orDefault(around.Namespace) != orDefault(g.address.Namespace) {
		return nil
	}
	return &Error{Code: codes.FailedPrecondition, Message: "the operation is begun inside itself, with the same key: a guard stands twice, or a handler calls itself"}
}

// durationOf leaves zero to the namespace's policy.
func durationOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func (g *guard) do(ctx context.Context, fn Func) (*Answer, error) {
	for range maxRounds {
		response, err := g.reserve(ctx)
		if err != nil {
			return nil, err
		}
		switch d := response.GetDecision().(type) {
		case *idemdv1.ReserveResponse_Owned:
			answer, again, err := g.execute(ctx, d.Owned, fn)
			if !again {
				return answer, err
			}
		case *idemdv1.ReserveResponse_Replay:
			return replayed(d.Replay)
		case *idemdv1.ReserveResponse_Unresolved:
			if err := g.reconcile(ctx, d.Unresolved); err != nil {
				return nil, err
			}
		default:
			return nil, &Error{Code: codes.Unimplemented, Message: "the daemon's decision is unknown to this client: update it"}
		}
	}
	return nil, &Error{Code: codes.Aborted, Message: fmt.Sprintf("the reservation changed %d times while it was looked at", maxRounds)}
}

func replayed(r *idemdv1.Replay) (*Answer, error) {
	answer := Answer{
		Result: orEmpty(r.GetResult()), Replayed: true, Attempt: r.GetAttempt(), PolicyVersion: r.GetPolicyVersion(),
		ReservedAt: r.GetReservedAt().AsTime(), FinishedAt: r.GetFinishedAt().AsTime(), ExpiresAt: r.GetExpiresAt().AsTime(),
	}
	if r.GetState() == idemdv1.State_STATE_FAILED_FINAL {
		return nil, &FinalError{Answer: answer}
	}
	return &answer, nil
}

package idem

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// attempt is one execution attempt that this client may own.
type attempt struct {
	c       *Client
	address Address
	token   []byte
	owned   *idemdv1.Owned
	keeper  *keeper
}

// execute runs fn as the attempt that was granted. again: the attempt was lost before fn
// was started, look anew.
func (g *guard) execute(ctx context.Context, owned *idemdv1.Owned, fn Func) (_ *Answer, again bool, _ error) {
	a := &attempt{c: g.c, address: g.address, token: g.request.GetOwnerToken(), owned: owned}
	a.keeper = &keeper{
		attempt: a, asked: g.request.GetLease(), lease: lease{g.sent, owned.GetLeaseRemaining().AsDuration()},
		progress: owned.GetCheckpoint(),
	}
	if refusal := a.freshen(ctx); refusal != nil {
		if refusal.leaseLost() {
			g.request.OwnerToken = NewToken()
			return nil, true, nil
		}
		return nil, false, a.notStarted(ctx, refusal)
	}
	if late := g.tooLate(ctx); late != nil {
		return nil, false, a.notStarted(ctx, late)
	}
	result, err := a.run(ctx, fn)
	o := outcomeOf(g.op.Mode, result, err)
	o.result = a.keeper.withDecisionID(o.result)
	told, unrecorded := a.tell(ctx, o)
	answer, err := a.answer(o, err, told, unrecorded)
	return answer, false, err
}

// freshen extends a lease that has run for a while already, because its Reserve was held
// or its reply late: fn shall not start with a lease that is nearly over.
func (a *attempt) freshen(ctx context.Context) *Error {
	const tries = 3
	for range tries {
		if time.Now().Before(a.keeper.renewal()) || a.keeper.atCap() {
			break
		}
		err := a.keeper.extend(ctx, a.c.options.Patience, nil, 0)
		if err != nil && err.Reason == LeaseCapReached {
			break
		}
		if err != nil {
			return err
		}
	}
	if !time.Now().Before(a.keeper.lease.end()) {
		return &Error{Code: codes.DeadlineExceeded, Message: "answers come too late for a lease of this length"}
	}
	return nil
}

// notStarted gives back an attempt whose fn was not run. Its caller has no time for that,
// or is gone: it goes on in the background soon.
func (a *attempt) notStarted(ctx context.Context, why *Error) error {
	const soon = time.Second
	o := outcome{failed: idemdv1.FailureKind_FAILURE_KIND_RETRYABLE}
	told, unrecorded := a.tellWithin(ctx, min(soon, a.c.options.FinishTimeout), o)
	_, err := a.answer(o, why, told, unrecorded)
	return err
}

// run runs fn while its lease is kept. A panic and a Goexit are recorded as an unknown
// outcome; they are not recovered from, and go on.
func (a *attempt) run(ctx context.Context, fn Func) (result *Result, err error) {
	returned := false
	leased := a.keeper.start(ctx)
	defer func() {
		a.keeper.stop()
		if !returned {
			_, _ = a.tell(ctx, outcome{failed: idemdv1.FailureKind_FAILURE_KIND_UNKNOWN, result: a.keeper.withDecisionID(nil)})
		}
	}()
	g := a.grant()
	result, err = fn(WithGrant(leased, g), g)
	returned = true
	return result, err
}

func (a *attempt) grant() *Grant {
	return &Grant{
		Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key,
		Attempt: a.owned.GetAttempt(), Fence: a.owned.GetFence(), Takeover: a.owned.GetTakeover(),
		ReservedAt:     timeOf(a.owned.GetReservedAt()),
		LastCheckpoint: bytes.Clone(a.owned.GetCheckpoint()), PolicyVersion: a.owned.GetPolicyVersion(),
		LastFailure: a.owned.GetLastFailure(), keeper: a.keeper,
	}
}

// answer is what Do returns about an attempt of its own.
func (a *attempt) answer(o outcome, err error, told told, unrecorded error) (*Answer, error) {
	answer := Answer{
		Result: orEmpty(o.result), Attempt: a.owned.GetAttempt(), Fence: a.owned.GetFence(),
		ExpiresAt: told.expires, PolicyVersion: a.owned.GetPolicyVersion(), Unrecorded: unrecorded,
	}
	switch {
	case o.failed == idemdv1.FailureKind_FAILURE_KIND_UNSPECIFIED:
		return &answer, nil
	case o.failed == idemdv1.FailureKind_FAILURE_KIND_FINAL || told.final:
		return nil, &FinalError{Answer: answer, Err: err}
	case o.failed == idemdv1.FailureKind_FAILURE_KIND_RETRYABLE:
		return nil, &NotExecutedError{Attempt: answer.Attempt, Err: err, Unrecorded: unrecorded}
	}
	return nil, &UnresolvedError{Unresolved: a.unresolved(told), Err: err, Unrecorded: unrecorded}
}

func (a *attempt) unresolved(told told) Unresolved {
	return Unresolved{
		Tenant: a.address.Tenant, Namespace: a.address.Namespace, Key: a.address.Key,
		Attempt: a.owned.GetAttempt(), Owner: a.c.options.Owner, Checkpoint: a.keeper.lastCheckpoint(),
		Version: told.version, PolicyVersion: a.owned.GetPolicyVersion(),
	}
}

func (a *attempt) leaseLost(cause error) {
	a.warn(context.Background(), "the lease was lost while the operation was under way", cause)
	if hook := a.c.options.Hooks.LeaseLost; hook != nil {
		hook(a.address, cause)
	}
}

// warn logs with the key: whoever reads this log is whoever chose it.
func (a *attempt) warn(ctx context.Context, message string, err error) {
	a.c.log.LogAttrs(ctx, slog.LevelWarn, message, slog.String("tenant", a.address.Tenant),
		slog.String("namespace", a.address.Namespace), slog.String("key", a.address.Key), slog.String("error", err.Error()))
}

// leaseLostBy is the cause of a lost lease.
func leaseLostBy(refusal *Error) error {
	if refusal == nil {
		return ErrLeaseLost
	}
	return fmt.Errorf("%w: %w", ErrLeaseLost, refusal)
}

package idem

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Unresolved is what is known about an operation of unknown outcome.
type Unresolved struct {
	Tenant, Namespace, Key string
	// Since is when its lease lapsed or it was declared unknown, by the daemon's clock;
	// zero where this call's own attempt has just ended so.
	Since time.Time
	// Attempt and Owner are those of the attempt.
	Attempt int32
	Owner   string
	// Checkpoint is its last one.
	Checkpoint []byte
	// Version is the one that a verdict is about.
	Version int64
	// PolicyVersion is the one that it ran under.
	PolicyVersion string
}

// DeriveKey is that of the attempt's Grant: the name under which to ask downstream.
func (u *Unresolved) DeriveKey(label string) string {
	return deriveKey(Address{u.Tenant, u.Namespace, u.Key}, label)
}

// Verdict is what Reconcile found out. The zero value means that it could not.
type Verdict struct {
	verdict idemdv1.Verdict
	result  *Result
	// Reason says why, for the history: 1-512 bytes. It has a default.
	Reason string
	// Evidence is what it rests on (a statement, a charge id): at most 1,024 bytes.
	Evidence string
}

// WasExecuted says that it was done; the result is replayed from now on.
func WasExecuted(result *Result) Verdict {
	return Verdict{verdict: idemdv1.Verdict_VERDICT_SUCCEEDED, result: orEmpty(result), Reason: "reconciled: it was executed"}
}

// WasRefused says that it was refused for good; the result is replayed from now on.
func WasRefused(result *Result) Verdict {
	return Verdict{verdict: idemdv1.Verdict_VERDICT_FAILED_FINAL, result: orEmpty(result), Reason: "reconciled: it was refused"}
}

// WasNotExecuted says that it was not done, and may be. It counts only if Reconcile was
// asked after the operation's settle time; Do waits for that and asks again.
func WasNotExecuted() Verdict {
	return Verdict{verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "reconciled: it was not executed"}
}

func orEmpty(result *Result) *Result {
	if result == nil {
		return &Result{}
	}
	return result
}

// reconcile finds out, with the operation's help, whether an unresolved operation was
// executed, and says so to the daemon. Nil: look anew.
func (g *guard) reconcile(ctx context.Context, u *idemdv1.Unresolved) error {
	// elapsed is by the store's clock, and at least as much had passed when the answer
	// came: no two clocks are compared.
	settled := time.Now().Add(g.op.settle() - u.GetElapsed().AsDuration())
	known := g.unresolved(u)
	if g.op.Reconcile == nil {
		return &UnresolvedError{Unresolved: known}
	}
	early := time.Now().Before(settled)
	asked := known
	verdict, err := g.op.Reconcile(WithGrant(ctx, nil), &asked) // an outer grant is another operation's
	switch {
	case err != nil:
		return &UnresolvedError{Unresolved: known, Err: err}
	case verdict.verdict == idemdv1.Verdict_VERDICT_UNSPECIFIED:
		return &UnresolvedError{Unresolved: known}
	case verdict.verdict == idemdv1.Verdict_VERDICT_NOT_EXECUTED && early:
		return g.awaitSettling(ctx, settled, known)
	}
	return g.resolve(ctx, verdict, known)
}

// awaitSettling waits until a paused owner counts as gone. What was found out before
// proves nothing then, so it is looked at anew.
func (g *guard) awaitSettling(ctx context.Context, settled time.Time, known Unresolved) error {
	rest := time.Until(settled)
	if settled.After(g.waitUntil) {
		return &UnresolvedError{Unresolved: known, RetryAfter: rest}
	}
	if !sleep(ctx, rest) {
		return &UnresolvedError{Unresolved: known, RetryAfter: max(time.Until(settled), 0), Err: endedBy(ctx, nil)}
	}
	return nil
}

// resolve records a verdict about the version that was looked at. Nil also where that
// version is over: something has changed, look anew.
func (g *guard) resolve(ctx context.Context, v Verdict, known Unresolved) error {
	request := &idemdv1.ResolveRequest{
		Tenant: known.Tenant, Namespace: known.Namespace, Key: known.Key, ExpectedVersion: known.Version,
		Verdict: v.verdict, Result: sendable(v.result), Reason: v.Reason, Evidence: v.Evidence,
	}
	for {
		err := persist(ctx, g.c.options.Patience, callTimeout, func(ctx context.Context) error {
			_, err := g.c.operator.Resolve(ctx, request)
			return err
		})
		if err == nil || err.Reason == VersionConflict || err.Reason == NotUnresolved || err.Reason == ReservationNotFound {
			return nil
		}
		less := reduced(request.GetResult(), err)
		if less == nil {
			return &UnresolvedError{Unresolved: known, Err: err}
		}
		request.Result = less
	}
}

func (g *guard) unresolved(u *idemdv1.Unresolved) Unresolved {
	return Unresolved{
		Tenant: g.address.Tenant, Namespace: g.address.Namespace, Key: g.address.Key,
		Since: timeOf(u.GetSince()), Attempt: u.GetAttempt(), Owner: u.GetOwner(), Checkpoint: u.GetCheckpoint(),
		Version: u.GetVersion(), PolicyVersion: u.GetPolicyVersion(),
	}
}

// timeOf leaves an unset time zero.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

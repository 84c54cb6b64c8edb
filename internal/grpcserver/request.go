package grpcserver

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/reservation"
)

// outOfRange stands for a duration, and invalidTime for a time, that no limit allows,
// so that validation refuses what protobuf can say and idemd can't mean: an explicit
// zero lease, a negative duration, year 10000.
const (
	outOfRange  = time.Duration(-1)
	invalidTime = reservation.Time(-1)
	invalidEnum = 255
)

// addressed is what every request has.
type addressed interface {
	GetTenant() string
	GetNamespace() string
	GetKey() string
}

func addressOf(r addressed) reservation.Address {
	namespace := r.GetNamespace()
	if namespace == "" {
		namespace = reservation.DefaultNamespace
	}
	return reservation.Address{Tenant: r.GetTenant(), Namespace: namespace, Key: r.GetKey()}
}

// positive is a duration whose unset value means a default: so an explicit zero is
// out of range.
func positive(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if d.CheckValid() != nil || d.AsDuration() <= 0 {
		return outOfRange
	}
	return d.AsDuration()
}

// orZero is a duration that may be zero.
func orZero(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if d.CheckValid() != nil {
		return outOfRange
	}
	return d.AsDuration()
}

func timeOf(t *timestamppb.Timestamp) reservation.Time {
	if t == nil {
		return 0
	}
	if t.CheckValid() != nil || t.AsTime().UnixMicro() <= 0 {
		return invalidTime
	}
	return reservation.TimeOf(t.AsTime())
}

func lapsePolicyOf(p idemdv1.LapsePolicy) reservation.LapsePolicy {
	switch p {
	case idemdv1.LapsePolicy_LAPSE_POLICY_UNSPECIFIED:
		return 0
	case idemdv1.LapsePolicy_LAPSE_POLICY_HOLD:
		return reservation.Hold
	case idemdv1.LapsePolicy_LAPSE_POLICY_RERUN:
		return reservation.Rerun
	}
	return invalidEnum
}

func outcomeKindOf(k idemdv1.FailureKind) reservation.OutcomeKind {
	switch k {
	case idemdv1.FailureKind_FAILURE_KIND_RETRYABLE:
		return reservation.ToldRetryable
	case idemdv1.FailureKind_FAILURE_KIND_FINAL:
		return reservation.ToldFinal
	case idemdv1.FailureKind_FAILURE_KIND_UNKNOWN:
		return reservation.ToldUnknown
	}
	return invalidEnum
}

func verdictOf(v idemdv1.Verdict) reservation.Verdict {
	switch v {
	case idemdv1.Verdict_VERDICT_SUCCEEDED:
		return reservation.VerdictSucceeded
	case idemdv1.Verdict_VERDICT_FAILED_FINAL:
		return reservation.VerdictFailedFinal
	case idemdv1.Verdict_VERDICT_NOT_EXECUTED:
		return reservation.VerdictNotExecuted
	}
	return invalidEnum
}

// resultOf is nil for an unset result.
func resultOf(r *idemdv1.Result) *reservation.Result {
	if r == nil {
		return nil
	}
	result := &reservation.Result{
		Status: r.GetStatus(), ContentType: r.GetContentType(), Body: r.GetBody(),
		BodyOmitted: r.GetBodyOmitted(), BodyRef: r.GetBodyRef(), DecisionID: r.GetDecisionId(),
	}
	for _, h := range r.GetHeaders() {
		result.Headers = append(result.Headers, reservation.Header{Name: h.GetName(), Value: h.GetValue()})
	}
	return result
}

// resultOrEmpty is an empty result for an unset one.
func resultOrEmpty(r *idemdv1.Result) reservation.Result {
	if r == nil {
		return reservation.Result{}
	}
	return *resultOf(r)
}

func reserveOf(r *idemdv1.ReserveRequest) *reservation.Reserve {
	return &reservation.Reserve{
		Address:     addressOf(r),
		Fingerprint: reservation.Fingerprint{Scheme: r.GetFingerprint().GetScheme(), Digest: r.GetFingerprint().GetDigest()},
		Token:       r.GetOwnerToken(), Lease: positive(r.GetLease()), Retention: positive(r.GetRetention()),
		OnLapse: lapsePolicyOf(r.GetOnLapse()), Owner: r.GetOwner(), PolicyVersion: r.GetPolicyVersion(),
		FirstAttemptAt: timeOf(r.GetFirstAttemptAt()),
	}
}

func extendOf(r *idemdv1.ExtendRequest) *reservation.Extend {
	return &reservation.Extend{
		Address: addressOf(r), Token: r.GetOwnerToken(), Lease: positive(r.GetLease()),
		Checkpoint: r.GetCheckpoint(), CheckpointSequence: r.GetCheckpointSequence(),
	}
}

func completeOf(r *idemdv1.CompleteRequest) *reservation.Complete {
	return &reservation.Complete{
		Address: addressOf(r), Token: r.GetOwnerToken(), Result: resultOrEmpty(r.GetResult()),
		Retention: positive(r.GetRetention()),
	}
}

func failOf(r *idemdv1.FailRequest) *reservation.Fail {
	return &reservation.Fail{
		Address: addressOf(r), Token: r.GetOwnerToken(), Kind: outcomeKindOf(r.GetKind()),
		Result: resultOrEmpty(r.GetResult()), RetryAfter: orZero(r.GetRetryAfter()), Retention: positive(r.GetRetention()),
	}
}

func resolveOf(r *idemdv1.ResolveRequest, actor string) *reservation.Resolve {
	return &reservation.Resolve{
		Address: addressOf(r), ExpectedVersion: r.GetExpectedVersion(), Verdict: verdictOf(r.GetVerdict()),
		Result: resultOf(r.GetResult()), Actor: actor, Reason: r.GetReason(), Evidence: r.GetEvidence(),
		BreakLease: r.GetBreakLease(),
	}
}

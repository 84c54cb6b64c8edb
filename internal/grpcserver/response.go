package grpcserver

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/reservation"
)

func protoTime(t reservation.Time) *timestamppb.Timestamp {
	if t == 0 {
		return nil
	}
	return timestamppb.New(t.Time())
}

func protoResult(r *reservation.Result) *idemdv1.Result {
	if r == nil {
		return nil
	}
	result := &idemdv1.Result{
		Status: r.Status, ContentType: r.ContentType, Body: r.Body,
		BodyOmitted: r.BodyOmitted, BodyRef: r.BodyRef, DecisionId: r.DecisionID,
	}
	for _, h := range r.Headers {
		result.Headers = append(result.Headers, &idemdv1.Header{Name: h.Name, Value: h.Value})
	}
	return result
}

// protoState relies on both sides numbering states alike, which a test holds.
func protoState(s reservation.State) idemdv1.State { return idemdv1.State(s) }

func protoDecision(outcome reservation.Outcome) *idemdv1.ReserveResponse {
	switch o := outcome.(type) {
	case *reservation.Owned:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: protoOwned(o)}}
	case *reservation.InProgress:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_InProgress{InProgress: protoInProgress(o)}}
	case *reservation.Replay:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Replay{Replay: protoReplay(o)}}
	case *reservation.Unresolved:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Unresolved{Unresolved: protoUnresolved(o)}}
	}
	return nil
}

func protoOwned(o *reservation.Owned) *idemdv1.Owned {
	return &idemdv1.Owned{
		Attempt: o.Attempt, Fence: o.Fence, LeaseExpiresAt: protoTime(o.LeaseExpiresAt),
		LeaseRemaining: durationpb.New(o.LeaseRemaining), Takeover: o.Takeover, Repeated: o.Repeated,
		Checkpoint: o.Checkpoint, PolicyVersion: o.PolicyVersion, LastFailure: protoResult(o.LastFailure),
		ReservedAt: protoTime(o.ReservedAt),
	}
}

func protoExtended(o *reservation.Extended) *idemdv1.ExtendResponse {
	return &idemdv1.ExtendResponse{
		LeaseExpiresAt: protoTime(o.LeaseExpiresAt), LeaseRemaining: durationpb.New(max(0, o.LeaseRemaining)), Clamped: o.Clamped,
	}
}

func protoCompleted(o *reservation.Recorded) *idemdv1.CompleteResponse {
	return &idemdv1.CompleteResponse{Version: o.Version, ExpiresAt: protoTime(o.ExpiresAt), Repeated: o.Repeated}
}

func protoFailed(o *reservation.Recorded) *idemdv1.FailResponse {
	return &idemdv1.FailResponse{Version: o.Version, ExpiresAt: protoTime(o.ExpiresAt), Repeated: o.Repeated, State: protoState(o.State)}
}

func protoInProgress(o *reservation.InProgress) *idemdv1.InProgress {
	return &idemdv1.InProgress{
		State: protoState(o.State), Attempt: o.Attempt, Owner: o.Owner,
		LeaseExpiresAt: protoTime(o.LeaseExpiresAt), RetryAfter: durationpb.New(o.RetryAfter),
	}
}

func protoReplay(o *reservation.Replay) *idemdv1.Replay {
	return &idemdv1.Replay{
		State: protoState(o.State), Result: protoResult(o.Result), Attempt: o.Attempt,
		ReservedAt: protoTime(o.ReservedAt), FinishedAt: protoTime(o.FinishedAt), ExpiresAt: protoTime(o.ExpiresAt),
		PolicyVersion: o.PolicyVersion,
	}
}

func protoUnresolved(o *reservation.Unresolved) *idemdv1.Unresolved {
	return &idemdv1.Unresolved{
		Since: protoTime(o.Since), Attempt: o.Attempt, Owner: o.Owner, Checkpoint: o.Checkpoint,
		Version: o.Version, PolicyVersion: o.PolicyVersion, Elapsed: durationpb.New(o.Elapsed),
	}
}

func protoReservation(address reservation.Address, found *reservation.Found) *idemdv1.Reservation {
	r := found.Record
	return &idemdv1.Reservation{
		Tenant: address.Tenant, Namespace: address.Namespace, Key: address.Key,
		State:       protoState(found.Shown),
		Fingerprint: &idemdv1.Fingerprint{Scheme: r.Fingerprint.Scheme, Digest: r.Fingerprint.Digest},
		Attempt:     r.Attempt, Fence: r.Fence, Version: r.Version, Owner: r.Owner,
		OnLapse: idemdv1.LapsePolicy(r.OnLapse), PolicyVersion: r.PolicyVersion, Checkpoint: r.Checkpoint,
		ReservedAt: protoTime(r.ReservedAt), LeaseExpiresAt: protoTime(r.LeaseExpiresAt),
		FinishedAt: protoTime(r.FinishedAt), ExpiresAt: protoTime(r.ExpiresAt),
		Result: protoResult(r.Result), History: protoHistory(r), HistoryDropped: r.HistoryDropped,
		UnresolvedSince: protoTime(r.UnresolvedSince(found.Now)), BodyExpiresAt: protoTime(r.BodyExpiresAt()),
		ErasedAt: protoTime(r.ErasedAt),
	}
}

// protoHistory merges history and evidence by time.
func protoHistory(r *reservation.Record) []*idemdv1.HistoryEntry {
	merged := make([]*idemdv1.HistoryEntry, 0, len(r.History)+len(r.Evidence))
	history, evidence := r.History, r.Evidence
	for len(history) > 0 || len(evidence) > 0 {
		if len(evidence) == 0 || len(history) > 0 && history[0].At <= evidence[0].At {
			merged = append(merged, protoEntry(&history[0]))
			history = history[1:]
			continue
		}
		merged = append(merged, protoEntry(&evidence[0]))
		evidence = evidence[1:]
	}
	return merged
}

func protoEntry(e *reservation.HistoryEntry) *idemdv1.HistoryEntry {
	entry := &idemdv1.HistoryEntry{
		At: protoTime(e.At), Kind: idemdv1.HistoryKind(e.Kind), Attempt: e.Attempt, Owner: e.Owner,
		From: protoState(e.From), To: protoState(e.To), Outcome: idemdv1.OutcomeKind(e.Outcome),
		Actor: e.Actor, Reason: e.Reason, Evidence: e.Evidence,
	}
	if e.TokenDigest != (reservation.ShortDigest{}) {
		entry.TokenDigest = e.TokenDigest[:]
	}
	if e.ResultDigest != (reservation.ResultDigest{}) {
		entry.ResultDigest = e.ResultDigest[:]
	}
	return entry
}

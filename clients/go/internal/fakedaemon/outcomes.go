package fakedaemon

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// maxBodyBytes is the daemon's limit.
const maxBodyBytes = 1 << 20

func (d *Daemon) extend(r *idemdv1.ExtendRequest) (proto.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.held(r.GetTenant(), r.GetNamespace(), r.GetKey(), r.GetOwnerToken())
	if err != nil {
		return nil, err
	}
	if r.GetCheckpointSequence() > 0 {
		have.is.Checkpoint = r.GetCheckpoint()
	}
	return &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(30 * time.Second)}, nil
}

func (d *Daemon) complete(r *idemdv1.CompleteRequest) (proto.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.held(r.GetTenant(), r.GetNamespace(), r.GetKey(), r.GetOwnerToken())
	if err != nil {
		return nil, err
	}
	if len(r.GetResult().GetBody()) > maxBodyBytes {
		return nil, refusal(codes.ResourceExhausted, "RESULT_TOO_LARGE")
	}
	d.finish(have, idemdv1.State_STATE_SUCCEEDED, r.GetResult())
	return &idemdv1.CompleteResponse{Version: have.is.GetVersion(), ExpiresAt: have.is.GetExpiresAt()}, nil
}

func (d *Daemon) fail(r *idemdv1.FailRequest) (proto.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.held(r.GetTenant(), r.GetNamespace(), r.GetKey(), r.GetOwnerToken())
	if err != nil {
		return nil, err
	}
	if len(r.GetResult().GetBody()) > maxBodyBytes {
		return nil, refusal(codes.ResourceExhausted, "RESULT_TOO_LARGE")
	}
	state := idemdv1.State_STATE_FAILED_RETRYABLE
	switch {
	case r.GetKind() == idemdv1.FailureKind_FAILURE_KIND_FINAL:
		state = idemdv1.State_STATE_FAILED_FINAL
	case r.GetKind() == idemdv1.FailureKind_FAILURE_KIND_UNKNOWN && have.is.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_RERUN:
		state = idemdv1.State_STATE_UNKNOWN
	}
	d.finish(have, state, r.GetResult())
	return &idemdv1.FailResponse{Version: have.is.GetVersion(), ExpiresAt: have.is.GetExpiresAt()}, nil
}

func (d *Daemon) resolve(r *idemdv1.ResolveRequest) (proto.Message, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.records[address{r.GetTenant(), r.GetNamespace(), r.GetKey()}]
	switch {
	case have == nil:
		return nil, refusal(codes.NotFound, "RESERVATION_NOT_FOUND")
	case have.is.GetVersion() != r.GetExpectedVersion():
		return nil, refusal(codes.Aborted, "VERSION_CONFLICT")
	}
	state := map[idemdv1.Verdict]idemdv1.State{
		idemdv1.Verdict_VERDICT_SUCCEEDED:    idemdv1.State_STATE_SUCCEEDED,
		idemdv1.Verdict_VERDICT_FAILED_FINAL: idemdv1.State_STATE_FAILED_FINAL,
		idemdv1.Verdict_VERDICT_NOT_EXECUTED: idemdv1.State_STATE_FAILED_RETRYABLE,
	}[r.GetVerdict()]
	d.finish(have, state, r.GetResult())
	return &idemdv1.ResolveResponse{Version: have.is.GetVersion()}, nil
}

// refusal is an error as a daemon makes it.
func refusal(code codes.Code, reason string) error {
	s, err := status.New(code, "refused").WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: "idemd"})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return s.Err()
}

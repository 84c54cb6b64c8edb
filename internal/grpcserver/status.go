package grpcserver

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/internal/reservation"
)

// Domain is the ErrorInfo domain of every reason.
const Domain = "idemd"

// codeOf maps each reason to its gRPC code. FAILED_PRECONDITION rather than
// ALREADY_EXISTS for what contradicts the record: callers take the latter for
// "created".
func codeOf(reason reservation.Reason) codes.Code {
	switch reason {
	case reservation.TenantInvalid, reservation.NamespaceInvalid, reservation.KeyInvalid,
		reservation.FingerprintInvalid, reservation.TokenInvalid, reservation.DurationOutOfRange,
		reservation.ResultInvalid, reservation.CheckpointInvalid, reservation.LabelInvalid,
		reservation.TimeInvalid, reservation.EnumInvalid, reservation.BatchInvalid, reservation.PageInvalid:
		return codes.InvalidArgument
	case reservation.FingerprintMismatch, reservation.StaleToken, reservation.AlreadyFinished,
		reservation.TokenSpent, reservation.KeyMayHaveExpired, reservation.NotUnresolved,
		reservation.LeaseCapReached, reservation.AttemptsExhausted, reservation.NotSettled, reservation.NotFinished:
		return codes.FailedPrecondition
	case reservation.VersionConflict:
		return codes.Aborted
	case reservation.NotFound:
		return codes.NotFound
	case reservation.ResultTooLarge, reservation.RateLimited, reservation.QuotaExceeded:
		return codes.ResourceExhausted
	case reservation.Unauthenticated:
		return codes.Unauthenticated
	case reservation.TenantForbidden, reservation.RoleRequired:
		return codes.PermissionDenied
	case reservation.StoreUnavailable, reservation.Draining, reservation.Overloaded:
		return codes.Unavailable
	case reservation.RecordUnreadable:
		return codes.DataLoss
	}
	return codes.Internal
}

// statusOf is the gRPC error for an engine's error: with ErrorInfo, and with
// RetryInfo where a retry can help.
func statusOf(err error) error {
	var refusal *reservation.Error
	switch {
	case errors.As(err, &refusal):
		return refusalStatus(refusal)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Internal, "internal error")
}

func refusalStatus(refusal *reservation.Error) error {
	info := &errdetails.ErrorInfo{Reason: string(refusal.Reason), Domain: Domain}
	if refusal.Field != "" {
		info.Metadata = map[string]string{"field": refusal.Field}
	}
	if refusal.Reason == reservation.VersionConflict {
		info.Metadata["version"] = strconv.FormatInt(refusal.Version, 10)
	}
	details := []protoadapt.MessageV1{protoadapt.MessageV1Of(info)}
	if refusal.RetryAfter > 0 {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(refusal.RetryAfter)}))
	}
	st := status.New(codeOf(refusal.Reason), refusal.Message)
	if detailed, err := st.WithDetails(details...); err == nil {
		st = detailed
	}
	return st.Err()
}

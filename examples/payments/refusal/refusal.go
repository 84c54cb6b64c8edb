package refusal

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Domain is the ErrorInfo domain of these refusals.
const Domain = "payments.example"

// The reasons.
const (
	// CardDeclined: the bank has declined the card.
	CardDeclined = "CARD_DECLINED"
	// KeyReused: the bank has another charge under this key.
	KeyReused = "KEY_REUSED"
	// VersionConflict: somebody else has changed the account. The metadata has the current
	// "version".
	VersionConflict = "VERSION_CONFLICT"
)

// New makes a refusal for good. FailedPrecondition is one by the guard's table, so each
// retry hears it again.
func New(reason, text string, metadata map[string]string) error {
	s := status.New(codes.FailedPrecondition, text)
	if full, err := s.WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason, Metadata: metadata}); err == nil {
		s = full
	}
	return s.Err()
}

// In finds the refusal in a status; nil: there is none.
func In(s *status.Status) *errdetails.ErrorInfo {
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == Domain {
			return info
		}
	}
	return nil
}

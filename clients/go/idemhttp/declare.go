package idemhttp

import (
	"net/http"

	"google.golang.org/grpc/codes"

	"github.com/idemd/idemd/clients/go/internal/guard"
)

// DeclareCall declares, within a guarded handler, what the error of a guarded gRPC call
// that it has made means for the handler's own request: [NotExecuted] where the call's
// guard says NOT_EXECUTED, NOT_STARTED or GUARD_UNAVAILABLE, [Unknown] where it says
// anything else, and where nobody has answered. False, and nothing is declared: there is
// no error, or it is a refusal for good of the handler behind (one of the codes that
// idemgrpc's table takes for final, and no reason), and this handler's own answer says what
// it means. The call's key is to be derived from the request's: idemgrpc.WithDerivedKey.
func DeclareCall(r *http.Request, err error) bool {
	if err == nil {
		return false
	}
	reason, code, answered := guard.Said(err)
	if answered && reason == "" && isRefusal(code) {
		return false
	}
	declareReason(r, reason)
	return true
}

// DeclareResponse is DeclareCall for a guarded HTTP request that the handler has made,
// under a key of [WithDerivedKey]. False, and nothing is declared: the status is that of the
// handler behind, for good (no reason or ANSWER_NOT_KEPT, and [KeepKey] is false), and says
// what it means. Errors of the round trip are DeclareCall's: nobody has answered.
func DeclareResponse(r *http.Request, response *http.Response) bool {
	reason := ReasonOf(response)
	if reason == ReasonAnswerNotKept || reason == "" && !KeepKey(response, nil) {
		return false
	}
	declareReason(r, reason)
	return true
}

func declareReason(r *http.Request, inner Reason) {
	switch inner {
	case ReasonNotExecuted, ReasonNotStarted, ReasonGuardUnavailable:
		NotExecuted(r)
	default:
		Unknown(r)
	}
}

// isRefusal: of the handler behind, for good.
func isRefusal(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

package guard

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// domain is the ErrorInfo domain of what guards say in a gRPC status.
const domain = "idem"

// Said reads the error of a gRPC call: the code of its status, and what a guard has said in
// it, empty if none has. False: it has no status.
func Said(err error) (Reason, codes.Code, bool) {
	s, is := status.FromError(err)
	if !is {
		return "", codes.Unknown, false
	}
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == domain {
			return Reason(info.GetReason()), s.Code(), true
		}
	}
	return "", s.Code(), true
}

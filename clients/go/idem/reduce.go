package idem

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// reduced is a result without what was refused of it. Nil: it was not refused for what is
// in it, or there is nothing left to leave out.
func reduced(r *Result, refusal *Error) *Result {
	if r == nil {
		return nil
	}
	less := proto.CloneOf(r)
	switch {
	case refusal.tooLarge():
		leaveOut(less, refusal.Metadata["field"], len(r.GetBody()) > 0)
	case refusal.Reason == ResultInvalid, refusal.Reason == LabelInvalid && strings.HasPrefix(refusal.Metadata["field"], "result."):
		leaveOut(less, refusal.Metadata["field"], false)
	case refusal.Reason == "" && refusal.Code == codes.Internal:
		leaveOutInvalidText(less) // gRPC sends no such message
	}
	if proto.Equal(less, r) {
		return nil
	}
	return less
}

// tooLarge: idemd's own limit, or one of gRPC's on the way.
func (e *Error) tooLarge() bool {
	return e.Reason == ResultTooLarge || e.Reason == "" && e.Code == codes.ResourceExhausted
}

// leaveOut leaves out one field. Where it is not named it is the body, or the headers.
func leaveOut(r *Result, field string, body bool) {
	switch {
	case field == "result.content_type":
		r.ContentType = ""
	case field == "result.decision_id":
		r.DecisionId = ""
	case field == "result.body_ref":
		r.BodyRef = ""
	case field == "result.body", field != "result.headers" && body:
		r.Body, r.BodyOmitted = nil, true
	default:
		r.Headers = nil
	}
}

// leaveOutInvalidText leaves out strings that are no UTF-8, which protobuf has no place for.
func leaveOutInvalidText(r *Result) {
	for _, text := range []*string{&r.ContentType, &r.DecisionId, &r.BodyRef} {
		if !utf8.ValidString(*text) {
			*text = ""
		}
	}
	for _, h := range r.GetHeaders() {
		if !utf8.ValidString(h.GetName()) {
			r.Headers = nil
			break
		}
	}
}

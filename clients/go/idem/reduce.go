package idem

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

var errNotUTF8 = errors.New("a text in it is not UTF-8")

// reduced is a result without what was refused of it. Nil: it was not refused for what is
// in it, or there is nothing left to leave out.
func reduced(r *Result, refusal *Error) *Result {
	if r == nil {
		return nil
	}
	less := proto.CloneOf(r)
	switch {
	case refusal.tooLarge(r):
		leaveOut(less, refusal.Metadata["field"], len(r.GetBody()) > 0)
	case refusal.Reason == ResultInvalid, refusal.Reason == LabelInvalid && strings.HasPrefix(refusal.Metadata["field"], "result."):
		leaveOut(less, refusal.Metadata["field"], false)
	}
	if proto.Equal(less, r) {
		return nil
	}
	return less
}

// tooLarge: over idemd's own limit, or one of gRPC's on the way. Without a reason it may be
// a rate limit as well, which is no reason to give up what could be kept.
func (e *Error) tooLarge(r *Result) bool {
	if e.Reason != "" || e.Code != codes.ResourceExhausted {
		return e.Reason == ResultTooLarge
	}
	return len(r.GetBody()) > MaxBodyBytes || strings.Contains(e.Message, "message larger than max")
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

// sendable is a result without the strings that are no UTF-8: protobuf has no place for
// them, and gRPC would send nothing at all.
func sendable(r *Result) *Result {
	if r == nil || valid(r) {
		return r
	}
	r = proto.CloneOf(r)
	for _, text := range []*string{&r.ContentType, &r.DecisionId, &r.BodyRef} {
		if !utf8.ValidString(*text) {
			*text = ""
		}
	}
	if !validHeaders(r) {
		r.Headers = nil
	}
	return r
}

func valid(r *Result) bool {
	return utf8.ValidString(r.GetContentType()) && utf8.ValidString(r.GetDecisionId()) && utf8.ValidString(r.GetBodyRef()) && validHeaders(r)
}

func validHeaders(r *Result) bool {
	return !slices.ContainsFunc(r.GetHeaders(), func(h *Header) bool { return !utf8.ValidString(h.GetName()) })
}

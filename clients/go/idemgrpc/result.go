package idemgrpc

import (
	"fmt"
	"strings"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idemd/idemd/clients/go/idem"
)

// trailerMark stands before the names of stored trailers: metadata has no such names.
const trailerMark = "trailer|"

// contentType names the message in the body.
func contentType(name protoreflect.FullName) string {
	return fmt.Sprintf("application/protobuf; messageType=%q", name)
}

// ResponseResult is how a response is stored: status OK, and the message's bytes. One
// that can't be serialised is stored as omitted.
func ResponseResult(response proto.Message) *idem.Result {
	if response == nil {
		return &idem.Result{BodyOmitted: true}
	}
	return bodyOf(codes.OK, response)
}

// StatusResult is how a refusal is stored: its code, and the whole status as the body.
func StatusResult(s *status.Status) *idem.Result {
	return bodyOf(s.Code(), s.Proto())
}

func bodyOf(code codes.Code, message proto.Message) *idem.Result {
	r := &idem.Result{Status: int32(code), ContentType: contentType(message.ProtoReflect().Descriptor().FullName())}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	r.Body, r.BodyOmitted = body, err != nil
	if err != nil {
		r.Body = nil
	}
	return r
}

// responseIn is the stored response; nil: it was not kept, or is of a type that the method
// does not return any more, or of an operator's making.
func (m *method) responseIn(r *idem.Result) proto.Message {
	response := m.response.New().Interface()
	if r.GetBodyOmitted() || r.GetContentType() != contentType(m.response.Descriptor().FullName()) || proto.Unmarshal(r.GetBody(), response) != nil {
		return nil
	}
	return response
}

// statusIn is the stored status of a refusal, or its code where the rest was not kept. It
// is never OK, whatever an operator has stored.
func statusIn(r *idem.Result) *status.Status {
	full := &spb.Status{}
	readable := r.GetContentType() == contentType(full.ProtoReflect().Descriptor().FullName()) && !r.GetBodyOmitted()
	if readable && proto.Unmarshal(r.GetBody(), full) == nil && full.GetCode() == r.GetStatus() && full.GetCode() != 0 {
		return status.FromProto(full)
	}
	code := codes.Code(r.GetStatus())
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.FailedPrecondition
	}
	return status.New(code, "refused earlier; the details were not kept")
}

// headersOf are metadata as they are stored.
func headersOf(header, trailer metadata.MD, allowed []string) (all []*idem.Header) {
	for _, name := range allowed {
		for _, value := range header.Get(name) {
			all = append(all, &idem.Header{Name: name, Value: []byte(value)})
		}
	}
	for _, name := range allowed {
		for _, value := range trailer.Get(name) {
			all = append(all, &idem.Header{Name: trailerMark + name, Value: []byte(value)})
		}
	}
	return all
}

// metadataIn are stored headers as metadata: those that are still allowed.
func metadataIn(r *idem.Result, allowed []string) (header, trailer metadata.MD) {
	header, trailer = metadata.MD{}, metadata.MD{}
	for _, h := range r.GetHeaders() {
		name, isTrailer := strings.CutPrefix(h.GetName(), trailerMark)
		for _, a := range allowed {
			switch {
			case a != name:
			case isTrailer:
				trailer.Append(name, string(h.GetValue()))
			default:
				header.Append(name, string(h.GetValue()))
			}
		}
	}
	return header, trailer
}

package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/idemd/idemd/clients/go/idem"
)

// Result is how an answer is stored, for verdicts of Reconcile. The type of the body is
// Content-Type's; a body that is larger than idem.MaxBodyBytes is stored as omitted.
func Result(status int, header http.Header, body []byte) *idem.Result {
	r := &idem.Result{Status: int32(status), ContentType: header.Get("Content-Type"), Body: body}
	if len(body) > idem.MaxBodyBytes {
		r.Body, r.BodyOmitted = nil, true
	}
	for name, values := range header {
		if name != "Content-Type" {
			r.Headers = appendHeader(r.Headers, name, values)
		}
	}
	return r
}

// Limits of the daemon's.
const (
	maxHeaders          = 64
	maxContentTypeBytes = 255
)

// result is the recorded answer as it is stored, with those of the allowed headers that
// fit, the first ones first. It has no body where that was not kept, is not what was
// announced, or could not be read without what does not fit. The error says what is not
// kept.
func (rec *recorder) result(allowed []string) (*idem.Result, error) {
	rec.settleType()
	r := &idem.Result{Status: int32(rec.status), ContentType: rec.header.Get("Content-Type"), Body: rec.body}
	var reduced []error
	leave := func(body bool, format string, values ...any) {
		reduced = append(reduced, fmt.Errorf("idemhttp: "+format, values...))
		if body {
			r.Body, r.BodyOmitted = nil, true
		}
	}
	if rec.omitted {
		leave(true, "the answer has %d bytes; %d are kept", rec.written, idem.MaxBodyBytes)
	}
	if rec.declared >= 0 && rec.written != rec.declared && hasBody(rec.status) && !rec.head {
		leave(true, "the answer has %d bytes and not the %d of its Content-Length", rec.written, rec.declared)
	}
	if !isStorableType(r.GetContentType()) {
		// Without its type the body might be taken for something else.
		r.ContentType = ""
		leave(true, "the answer's Content-Type is not up to %d bytes of printable ASCII", maxContentTypeBytes)
	}
	room := idem.MaxHeaderBytes
	for _, name := range allowed {
		values := rec.header[name]
		size := len(name)*len(values) + len(strings.Join(values, ""))
		if size > room || len(r.GetHeaders())+len(values) > maxHeaders {
			leave(name == "Content-Encoding", "%s does not fit: %d bytes and %d headers are kept", name, idem.MaxHeaderBytes, maxHeaders)
			continue
		}
		room -= size
		r.Headers = appendHeader(r.Headers, name, values)
	}
	return r, errors.Join(reduced...)
}

func isStorableType(text string) bool {
	return len(text) <= maxContentTypeBytes && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c >= 0x7f })
}

func appendHeader(all []*idem.Header, name string, values []string) []*idem.Header {
	for _, value := range values {
		all = append(all, &idem.Header{Name: name, Value: []byte(value)})
	}
	return all
}

func valuesOf(r *idem.Result, name string) (values []string) {
	for _, h := range r.GetHeaders() {
		if h.GetName() == name {
			values = append(values, string(h.GetValue()))
		}
	}
	return values
}

// replay writes a stored answer: those of its headers that are still allowed.
func (g *Guard) replay(w http.ResponseWriter, a *idem.Answer, refused bool) (reason Reason) {
	h := w.Header()
	for _, name := range g.headers {
		if values := valuesOf(a.Result, name); len(values) > 0 {
			h[name] = values
		}
	}
	h.Set(ReplayedHeader, "true")
	announceExpiry(h, a.ExpiresAt)
	status := int(a.Result.GetStatus())
	known := status >= 200 && status <= 999 // all that a handler can have answered
	if !known {                             // an operator's
		if status = http.StatusOK; refused {
			status = http.StatusConflict
		}
	}
	if a.Result.GetBodyOmitted() || !known && len(a.Result.GetBody()) == 0 {
		h.Del("Content-Encoding")
		write(w, problem{status: status, reason: ReasonAnswerNotKept, result: a.Result})
		return ReasonAnswerNotKept
	}
	if h["Content-Type"] = nil; a.Result.GetContentType() != "" {
		h.Set("Content-Type", a.Result.GetContentType())
	}
	w.WriteHeader(status)
	if hasBody(status) && len(a.Result.GetBody()) > 0 {
		_, _ = w.Write(a.Result.GetBody())
	}
	return ""
}

package idemhttp

import (
	"net/http"

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

// result is the recorded answer as it is stored. It has no body if that was not kept, is
// less than was announced, or could not be read without headers that are too many.
func (rec *recorder) result(allowed []string) *idem.Result {
	rec.settleType()
	r := &idem.Result{Status: int32(rec.status), ContentType: rec.header.Get("Content-Type")}
	bytes := 0
	for _, name := range allowed {
		r.Headers = appendHeader(r.Headers, name, rec.header[name])
	}
	for _, h := range r.GetHeaders() {
		bytes += len(h.GetName()) + len(h.GetValue())
	}
	cut := rec.declared >= 0 && rec.written != rec.declared && hasBody(rec.status) && !rec.head
	if bytes > idem.MaxHeaderBytes || len(r.GetHeaders()) > maxHeaders {
		r.Headers = nil
		cut = cut || rec.header.Get("Content-Encoding") != ""
	}
	if r.Body, r.BodyOmitted = rec.body, rec.omitted || cut; r.GetBodyOmitted() {
		r.Body = nil
	}
	return r
}

// maxHeaders is how many the daemon keeps.
const maxHeaders = 64

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
	known := status >= 200 && status <= 599
	if !known { // an operator's
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

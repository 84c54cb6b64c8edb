package idemhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
)

// Reason is why a request was answered by its guard, or what its guard adds to the
// handler's answer, in [ReasonHeader]. A guard's own answer is an RFC 9457 problem
// document, whose type is [ProblemType] of the reason.
type Reason string

// The reasons; docs/guards.md has their status codes.
const (
	// ReasonKeyRequired: there is no key.
	ReasonKeyRequired Reason = "KEY_REQUIRED"
	// ReasonKeyInvalid: it can't be a key, or there are two.
	ReasonKeyInvalid Reason = "KEY_INVALID"
	// ReasonRequestTooLarge: the body is larger than what is taken.
	ReasonRequestTooLarge Reason = "REQUEST_TOO_LARGE"
	// ReasonRequestRefused: the body can't be read, or no fingerprint can be made.
	ReasonRequestRefused Reason = "REQUEST_REFUSED"
	// ReasonInProgress: another request is on it.
	ReasonInProgress Reason = "IN_PROGRESS"
	// ReasonFingerprintMismatch: the key was first used for something else.
	ReasonFingerprintMismatch Reason = "FINGERPRINT_MISMATCH"
	// ReasonKeyMayHaveExpired: the record may have been forgotten.
	ReasonKeyMayHaveExpired Reason = "KEY_MAY_HAVE_EXPIRED"
	// ReasonOutcomeUnknown: it may have been done; nobody repeats it before somebody has found
	// out. On a handler's own answer: so it ended.
	ReasonOutcomeUnknown Reason = "OUTCOME_UNKNOWN"
	// ReasonNotExecuted: it was certainly not done; repeat it.
	ReasonNotExecuted Reason = "NOT_EXECUTED"
	// ReasonAnswerNotKept: it is over, and its answer can't be given again.
	ReasonAnswerNotKept Reason = "ANSWER_NOT_KEPT"
	// ReasonNotRecorded: a refusal that the daemon could not be told.
	ReasonNotRecorded Reason = "NOT_RECORDED"
	// ReasonNotStarted: there was no time for it, or the caller has gone.
	ReasonNotStarted Reason = "NOT_STARTED"
	// ReasonGuardUnavailable: the daemon can't be reached; the handler did not run.
	ReasonGuardUnavailable Reason = "GUARD_UNAVAILABLE"
	// ReasonGuardRefused: the daemon refused what the server asked of it: its configuration is
	// wrong, and the request was not executed.
	ReasonGuardRefused Reason = "GUARD_REFUSED"
	// ReasonNoSuchRequest: a status resource of nothing that the caller may see.
	ReasonNoSuchRequest Reason = "NO_SUCH_REQUEST"
)

// retryUnreachable is when to come back where the daemon does not say.
const retryUnreachable = time.Second

// ProblemType is the type of the problem documents with this reason; empty where there is
// none.
func ProblemType(reason Reason) string {
	if reason == "" {
		return "about:blank"
	}
	return "urn:idemd:problem:" + strings.ReplaceAll(strings.ToLower(string(reason)), "_", "-")
}

// keeps: a repetition must carry the same key.
func (reason Reason) keeps() bool {
	switch reason {
	case ReasonKeyRequired, ReasonKeyInvalid, ReasonRequestTooLarge, ReasonRequestRefused, ReasonFingerprintMismatch, ReasonAnswerNotKept:
		return false
	}
	return true
}

// title is the problem in few words, always the same ones.
func (reason Reason) title() string {
	switch reason {
	case ReasonKeyRequired:
		return "Idempotency-Key is missing"
	case ReasonKeyInvalid:
		return "Idempotency-Key can't be a key"
	case ReasonRequestTooLarge:
		return "The request is too large"
	case ReasonRequestRefused:
		return "The request can't be read"
	case ReasonInProgress:
		return "The request is under way: repeat it later, with the same key"
	case ReasonFingerprintMismatch:
		return "Idempotency-Key was first used for another request: a new request, also a corrected one, needs a new key"
	case ReasonKeyMayHaveExpired:
		return "The key is so old that its record may have been forgotten: find out whether it was done"
	case ReasonOutcomeUnknown:
		return "The request may have been executed: nobody repeats it before somebody has found out; keep the key"
	case ReasonNotExecuted:
		return "The request was not executed: repeat it with the same key"
	case ReasonAnswerNotKept:
		return "The request is over; its answer was not kept"
	case ReasonNotStarted:
		return "The request was not started: repeat it with the same key"
	case ReasonGuardUnavailable:
		return "The guard can't be reached; the request was not executed: repeat it with the same key"
	case ReasonGuardRefused:
		return "The guard is not set up for this request"
	case ReasonNoSuchRequest:
		return "There is no such request"
	}
	return "The request was refused"
}

// problem is an answer of the guard's own.
type problem struct {
	status int
	reason Reason        // empty: it is Validate's, Tenant's or Subject's
	detail string        // what the title does not say
	retry  time.Duration // 0 = not said
}

// write answers with a problem document. Nobody may cache it.
func write(w http.ResponseWriter, p problem) {
	document := struct {
		Type    string `json:"type"`
		Title   string `json:"title"`
		Status  int    `json:"status"`
		Detail  string `json:"detail,omitempty"`
		Reason  Reason `json:"reason,omitempty"`
		KeepKey bool   `json:"keep_key"`
	}{ProblemType(p.reason), p.reason.title(), p.status, p.detail, p.reason, p.reason.keeps()}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	if p.reason != "" {
		h.Set(ReasonHeader, string(p.reason))
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.retry+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(p.status)
	if hasBody(p.status) {
		_ = json.NewEncoder(w).Encode(document) // else the caller is gone
	}
}

// refusedError is an error that says how to answer.
type refusedError struct {
	status int
	detail string
}

// Error implements error.
func (e *refusedError) Error() string { return e.detail }

// Refuse makes an error for Config.Tenant, Subject and Validate: the request is refused
// with this status, 400 to 599, and the detail is shown to the caller.
func Refuse(status int, detail string) error { return &refusedError{status, detail} }

// refusedBy is the answer to an error of Config's functions, which have a status of their
// own where it does not say one.
func refusedBy(err error, status int, detail string) problem {
	var said *refusedError
	if errors.As(err, &said) && said.status >= 400 && said.status <= 599 {
		return problem{status: said.status, detail: said.detail}
	}
	return problem{status: status, detail: detail}
}

// inProgress is 202 only where there is something to look at: who hears it must not take
// it for done.
func (g *Guard) inProgress(w http.ResponseWriter, r *http.Request, op idem.Operation, retry time.Duration) problem {
	p := problem{status: http.StatusConflict, reason: ReasonInProgress, retry: retry}
	if g.config.StatusPath != "" && g.config.Profile == ProfileDefault {
		if at, err := g.statusURL(r, op); err == nil {
			w.Header().Set("Location", at)
			p.status = http.StatusAccepted
		}
	}
	return p
}

// refusalOf is the answer where Do ended without the handler and without a replay.
func (g *Guard) refusalOf(w http.ResponseWriter, r *http.Request, op idem.Operation, err error) problem {
	switch e := err.(type) { //nolint:errorlint // Do's own error: what it wraps may be another Do's
	case *idem.InProgressError:
		return g.inProgress(w, r, op, max(e.RetryAfter, retryUnreachable))
	case *idem.UnresolvedError:
		return problem{status: http.StatusConflict, reason: ReasonOutcomeUnknown, retry: e.RetryAfter}
	case *idem.NotExecutedError:
		return problem{status: http.StatusServiceUnavailable, reason: ReasonNotStarted, retry: retryUnreachable}
	case *idem.Error:
		return g.refusalBy(e)
	}
	return problem{status: http.StatusServiceUnavailable, reason: ReasonGuardRefused}
}

// refusalBy is the answer to what the daemon refused, or did not answer.
func (g *Guard) refusalBy(refused *idem.Error) problem {
	switch refused.Reason {
	case idem.FingerprintMismatch:
		if g.config.Profile == ProfileIETF {
			return problem{status: http.StatusUnprocessableEntity, reason: ReasonFingerprintMismatch}
		}
		return problem{status: http.StatusConflict, reason: ReasonFingerprintMismatch}
	case idem.KeyMayHaveExpired:
		return problem{status: http.StatusConflict, reason: ReasonKeyMayHaveExpired}
	case idem.KeyInvalid, idem.TimeInvalid:
		return problem{status: http.StatusBadRequest, reason: ReasonKeyInvalid, detail: refused.Message}
	}
	switch {
	case ended(refused):
		return problem{status: http.StatusServiceUnavailable, reason: ReasonNotStarted, retry: retryUnreachable}
	case permanent(refused):
		return problem{status: http.StatusServiceUnavailable, reason: ReasonGuardRefused, detail: said(refused)}
	}
	return problem{status: http.StatusServiceUnavailable, reason: ReasonGuardUnavailable, retry: max(refused.RetryAfter, retryUnreachable)}
}

package idemhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Reason is why a request was answered by its guard, or what its guard adds to the
// handler's answer, in [ReasonHeader]. A guard's own answer is an RFC 9457 problem
// document, whose type is [ProblemType] of the reason.
type Reason = guard.Reason

// The reasons; docs/guards.md has their status codes.
const (
	// ReasonKeyRequired: there is no key.
	ReasonKeyRequired Reason = guard.KeyRequired
	// ReasonKeyInvalid: it can't be a key, or there are two.
	ReasonKeyInvalid Reason = guard.KeyInvalid
	// ReasonRequestTooLarge: the body is larger than what is taken.
	ReasonRequestTooLarge Reason = guard.RequestTooLarge
	// ReasonRequestRefused: the body can't be read, or no fingerprint can be made.
	ReasonRequestRefused Reason = guard.RequestRefused
	// ReasonInProgress: another request is on it.
	ReasonInProgress Reason = guard.InProgress
	// ReasonFingerprintMismatch: the key was first used for something else.
	ReasonFingerprintMismatch Reason = guard.FingerprintMismatch
	// ReasonKeyMayHaveExpired: the record may have been forgotten.
	ReasonKeyMayHaveExpired Reason = guard.KeyMayHaveExpired
	// ReasonOutcomeUnknown: it may have been done; nobody repeats it before somebody has found
	// out. On a handler's own answer: so it ended.
	ReasonOutcomeUnknown Reason = guard.OutcomeUnknown
	// ReasonNotExecuted: it was certainly not done; repeat it.
	ReasonNotExecuted Reason = guard.NotExecuted
	// ReasonAnswerNotKept: it is over, and its answer can't be given again.
	ReasonAnswerNotKept Reason = guard.AnswerNotKept
	// ReasonNotRecorded: a refusal that the daemon could not be told.
	ReasonNotRecorded Reason = guard.NotRecorded
	// ReasonNotStarted: there was no time for it, or the caller has gone.
	ReasonNotStarted Reason = guard.NotStarted
	// ReasonGuardUnavailable: the daemon can't be reached; the handler did not run.
	ReasonGuardUnavailable Reason = guard.Unavailable
	// ReasonGuardRefused: the daemon refused what the server asked of it: its configuration is
	// wrong, and the request was not executed.
	ReasonGuardRefused Reason = guard.Misconfigured
	// ReasonNoSuchRequest: a status resource of nothing that the caller may see.
	ReasonNoSuchRequest Reason = guard.NoSuchRequest
)

// ProblemType is the type of the problem documents with this reason; empty where there is
// none.
func ProblemType(reason Reason) string {
	if reason == "" {
		return "about:blank"
	}
	return "urn:idemd:problem:" + strings.ReplaceAll(strings.ToLower(string(reason)), "_", "-")
}

// titleOf is the problem in few words, always the same ones.
func titleOf(reason Reason) string {
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
	// result is the one whose body was not kept: what else is known of it.
	result *idem.Result
}

// write answers with a problem document. Nobody may cache it.
func write(w http.ResponseWriter, p problem) {
	document := struct {
		Type       string `json:"type"`
		Title      string `json:"title"`
		Status     int    `json:"status"`
		Detail     string `json:"detail,omitempty"`
		Reason     Reason `json:"reason,omitempty"`
		KeepKey    bool   `json:"keep_key"`
		DecisionID string `json:"decision_id,omitempty"`
		BodyRef    string `json:"body_ref,omitempty"`
	}{
		ProblemType(p.reason), titleOf(p.reason), p.status, p.detail, p.reason, guard.KeepKey(p.reason),
		p.result.GetDecisionId(), p.result.GetBodyRef(),
	}
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

// inProgress is 202 only where there is something to look at, whose address is given: who
// hears it must not take it for done.
func (g *Guard) inProgress(w http.ResponseWriter, at string, retry time.Duration) problem {
	p := problem{status: http.StatusConflict, reason: ReasonInProgress, retry: retry}
	if at != "" && g.config.Profile == ProfileDefault {
		w.Header().Set("Location", at)
		p.status = http.StatusAccepted
	}
	return p
}

// refusalOf is the answer where Do ended without the handler and without a replay, or a
// Lookup without a record. at is the address of the status resource.
func (g *Guard) refusalOf(w http.ResponseWriter, at string, err error) problem {
	why := guard.RefusalOf(err)
	p := problem{status: http.StatusServiceUnavailable, reason: why.Reason, detail: why.Detail, retry: why.Retry}
	switch why.Reason {
	case ReasonInProgress:
		return g.inProgress(w, at, why.Retry)
	case ReasonOutcomeUnknown, ReasonKeyMayHaveExpired:
		p.status = http.StatusConflict
	case ReasonKeyInvalid:
		p.status = http.StatusBadRequest
	case ReasonFingerprintMismatch:
		if p.status = http.StatusConflict; g.config.Profile == ProfileIETF {
			p.status = http.StatusUnprocessableEntity
		}
	}
	return p
}

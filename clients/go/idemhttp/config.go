package idemhttp

import (
	"context"
	"net/http"
	"time"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Headers that the middleware and the transport read and write.
const (
	// KeyHeader carries the caller's key, as an RFC 8941 string or as it is.
	KeyHeader = "Idempotency-Key"
	// ReplayedHeader is "true" where the answer is that of an earlier request.
	ReplayedHeader = "Idempotent-Replayed"
	// ExpiresHeader is until when the answer is replayed, as an RFC 3339 time; after it
	// the key is new again.
	ExpiresHeader = "Idempotent-Expires-At"
	// ReasonHeader is the [Reason] of an answer that the guard has made, or what it adds to
	// a handler's.
	ReasonHeader = "Idempotent-Reason"
)

// DefaultWait is how long a request waits for another one's answer: shorter than what
// clients and proxies usually wait for theirs (30 s).
const DefaultWait = 20 * time.Second

// Need says what becomes of a request without a key.
type Need = guard.Need

const (
	// Required refuses it.
	Required Need = guard.Required
	// Optional runs it unguarded, and tells Config.Observe.
	Optional Need = guard.Optional
	// Off looks at no keys and runs every request unguarded. Nobody is told.
	Off Need = guard.Off
)

// Profile says in which status codes a guard answers.
type Profile int

const (
	// ProfileDefault answers 202 to what is in progress where there is a status resource,
	// else 409, and 409 to another request under the same key.
	ProfileDefault Profile = iota
	// ProfileIETF answers as draft-ietf-httpapi-idempotency-key-header does: 409 to what is
	// in progress, 422 to another request under the same key.
	ProfileIETF
)

// Config says how handlers are guarded. The zero value demands a key of every POST and
// PATCH, and takes the effect for an external one. It is read once, by [New].
type Config struct {
	// Need says what becomes of a request without a key.
	Need Need
	// Methods are those that are guarded; others pass. Nil = POST and PATCH.
	Methods []string
	// KeyHasTime takes the time in keys that are UUIDs of version 7 for that of the first
	// attempt, so that a retry after the retention is refused instead of run as new. Only
	// for callers whose keys and clocks are trusted.
	KeyHasTime bool
	// Mode, Namespace, Lease, Retention, MinRemaining, Settle and PolicyVersion are those
	// of idem.Operation.
	Mode                                   idem.Mode
	Namespace                              string
	Lease, Retention, MinRemaining, Settle time.Duration
	PolicyVersion                          string
	// Wait is how long a request waits for another one's answer. Zero = DefaultWait;
	// negative = not at all.
	Wait time.Duration
	// Tenant says who the key belongs to, by what is known for certain about the caller:
	// an authenticated identity, never a free header. Nil = the client's tenant. An error
	// refuses the request: with 403, or as [Refuse] says; so does an empty name.
	Tenant func(*http.Request) (string, error)
	// Subject names the end user or account on whose behalf the request runs: it is part
	// of the fingerprint, so that nobody gets another's answer by knowing a key. Nil =
	// there is none. Its errors are as Tenant's.
	Subject func(*http.Request) (string, error)
	// Validate refuses malformed requests before anything is reserved, so that they take
	// no key; it sees those without a key, too. It may read the body. An error refuses the
	// request: with 400 and the error's text, or as [Refuse] says. What it, Tenant or
	// Subject change of the request's header or URL the handler sees; the key and the
	// fingerprint were taken before.
	Validate func(*http.Request) error
	// Fingerprint says what of the request counts.
	Fingerprint fingerprint.HTTPRules
	// MaxBodyBytes is the largest body that is taken of a request with a key, or with
	// Validate. Zero = fingerprint.MaxBytes, which is also the most.
	MaxBodyBytes int64
	// Outcome says what the status of a handler's answer means for the key, unless the
	// handler has declared it itself: [Succeeded], [NotExecuted], [Final], [Unknown]. It is
	// asked about every status, also 2xx; where it returns OutcomeUndeclared, the zero
	// value, DefaultOutcome says it. Nil = DefaultOutcome.
	Outcome func(r *http.Request, status int) Outcome
	// Headers are the names of the answer's headers that are stored and replayed if the
	// handler sets them, the most important first: what does not fit in 64 headers and
	// idem.MaxHeaderBytes is left out. Nil = DefaultHeaders. Content-Type and
	// Content-Encoding always are.
	Headers []string
	// Reconcile finds out whether a request of unknown outcome was executed. It can read
	// the body. See idem.Operation; [Result] makes the results of verdicts.
	Reconcile func(ctx context.Context, r *http.Request, u *idem.Unresolved) (idem.Verdict, error)
	// Open runs requests unguarded while the daemon can't be reached: what arrives twice
	// then is done twice. Observe is told of each. The default is closed. How long the
	// daemon is tried before is idem.Options.Patience.
	Open bool
	// Profile says in which status codes the guard answers.
	Profile Profile
	// StatusPath is where [Guard.StatusHandler] is to be found by callers: one absolute
	// path with a slash at either end, "/idempotency/". Empty = there is none.
	StatusPath string
	// StatusSecret, at least 16 bytes and the same on all replicas, binds the addresses of
	// status resources to tenant, subject and fingerprint. Required where there are both
	// Subject and StatusPath.
	StatusSecret []byte
	// Observe is told how each guarded request ended, for metrics; not of handlers that
	// panic. It must return quickly and be safe for use by many goroutines.
	Observe func(*http.Request, Event)
}

// DefaultHeaders are those that are replayed where Config.Headers is nil.
func DefaultHeaders() []string {
	return []string{"Location", "Content-Location", "Content-Language", "Content-Disposition", "ETag", "Last-Modified", "Link"}
}

// Ending is how a guarded request ended.
type Ending = guard.Ending

// The endings.
const (
	// Executed: the handler ran, and how it ended is recorded.
	Executed Ending = guard.Executed
	// Unrecorded: the handler ran and the caller has its answer, but the daemon could not
	// be told (yet). Event.Err says why.
	Unrecorded Ending = guard.Unrecorded
	// Replayed: the caller has the answer of an earlier request.
	Replayed Ending = guard.Replayed
	// Refused: the handler did not run. Event.Reason says why; it is empty where Validate,
	// Tenant or Subject refused.
	Refused Ending = guard.Refused
	// Unguarded: the handler ran without a guard. Event.Err says why the daemon could not
	// be reached; nil = there was no key.
	Unguarded Ending = guard.Unguarded
)

// Event is what Config.Observe is told of a request.
type Event struct {
	Ending Ending
	// Reason is that of the answer.
	Reason Reason
	// Err is why the handler did not run, ran unguarded, or was not recorded.
	Err error
	// Reduced is what of the handler's answer is not kept, and so will not be replayed: its
	// body, a header. Nil = all of it is.
	Reduced error
	// Reconciled: in this request Reconcile found out how an earlier attempt had ended, and so
	// it was replayed, or executed again. Not said of what is refused all the same.
	Reconciled bool
}

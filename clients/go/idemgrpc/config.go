package idemgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Metadata that the interceptors read and write.
const (
	// KeyHeader carries the caller's key.
	KeyHeader = "idempotency-key"
	// ReplayedHeader is "true" where the answer is that of an earlier call.
	ReplayedHeader = "idempotent-replayed"
	// ExpiresHeader is until when the answer is replayed, as an RFC 3339 time; after it
	// the key is new again.
	ExpiresHeader = "idempotent-expires-at"
)

// Need says what becomes of a call without a key.
type Need = guard.Need

const (
	// Required refuses it.
	Required Need = guard.Required
	// Optional runs it unguarded, and tells Config.Observe.
	Optional Need = guard.Optional
	// Off looks at no keys and runs every call unguarded. Nobody is told.
	Off Need = guard.Off
)

// Config says which methods of a server are guarded, and how. It is read once, when an
// interceptor is built.
type Config struct {
	// Methods are the guards by full method name: "/shop.v1.Orders/Create". Methods that
	// are not named run unguarded. A stream has no single answer that could be replayed:
	// a guard on one is refused.
	Methods map[string]Guard
	// Tenant says who the key belongs to, by what is known for certain about the caller:
	// an authenticated identity, never a free header. Its error is the caller's answer;
	// an empty one is refused. Nil = the client's tenant.
	Tenant func(ctx context.Context, request proto.Message) (string, error)
	// Subject names the end user or account on whose behalf the call runs: it is part of
	// the fingerprint, so that nobody gets another's answer by knowing a key. Its error
	// is the caller's answer. Nil = there is none.
	Subject func(ctx context.Context, request proto.Message) (string, error)
	// Outcome says what a handler's status means for the key, unless the handler has
	// declared it itself: idem.NotExecuted, Final, Unknown. It is not asked about OK. Nil,
	// and OutcomeUndeclared as its answer, are DefaultOutcome.
	Outcome func(method string, s *status.Status) Outcome
	// Headers are the names of the headers and trailers that are stored and replayed if
	// the handler sets them. While there are any, a handler can't call
	// grpc.SetSendCompressor: gRPC's stream is wrapped.
	Headers []string
	// Observe is told how each guarded call ended, for metrics; not of calls that panic.
	// It must return quickly and be safe for use by many goroutines.
	Observe func(context.Context, Event)
}

// Guard is how one method is guarded. The zero value demands a key, and takes the effect
// for an external one.
type Guard struct {
	// Need says what becomes of a call without a key.
	Need Need
	// KeyField names a string field of the request that holds the key, as request_id of
	// AIP-155 does. The metadata will do as well; where both are there they must be the
	// same. It is no part of the fingerprint.
	KeyField string
	// KeyHasTime takes the time in keys that are UUIDs of version 7 for that of the first
	// attempt, so that a retry after the retention is refused instead of run as new. Only
	// for callers whose keys and clocks are trusted.
	KeyHasTime bool
	// Mode, Namespace, Lease, Retention, Wait, MinRemaining, Settle and PolicyVersion are
	// those of idem.Operation. A wait ends MinRemaining before the caller's deadline, so
	// that "in progress" arrives.
	Mode                                         idem.Mode
	Namespace                                    string
	Lease, Retention, Wait, MinRemaining, Settle time.Duration
	PolicyVersion                                string
	// Fingerprint says what of the request counts. Its Operation is the full method name
	// if it is empty: name it where the method is about to be renamed.
	Fingerprint fingerprint.Rules
	// Validate refuses malformed requests before anything is reserved, so that they take
	// no key. Its error is the caller's answer.
	Validate func(ctx context.Context, request proto.Message) error
	// Reconcile finds out whether a call of unknown outcome was executed. See
	// idem.Operation; [ResponseResult] and [StatusResult] make the results of verdicts.
	Reconcile func(ctx context.Context, request proto.Message, u *idem.Unresolved) (idem.Verdict, error)
	// Open runs calls unguarded while the daemon can't be reached: what arrives twice
	// then is done twice. Config.Observe is told of each. The default is closed. How
	// long the daemon is tried before is idem.Options.Patience.
	Open bool
}

// Ending is how a guarded call ended.
type Ending = guard.Ending

// The endings.
const (
	// Executed: the handler ran, and how it ended is recorded.
	Executed Ending = guard.Executed
	// Unrecorded: the handler ran and the caller has its answer, but the daemon could not
	// be told (yet). Event.Err says why.
	Unrecorded Ending = guard.Unrecorded
	// Replayed: the caller has the answer of an earlier call.
	Replayed Ending = guard.Replayed
	// Refused: the handler did not run. Event.Reason says why; it is empty where Validate,
	// Tenant or Subject refused.
	Refused Ending = guard.Refused
	// Unguarded: the handler ran without a guard. Event.Err says why the daemon could not
	// be reached; nil = there was no key.
	Unguarded Ending = guard.Unguarded
)

// Event is what Config.Observe is told of a call.
type Event struct {
	// Method is its full name.
	Method string
	Ending Ending
	// Reason is that of the answer's ErrorInfo.
	Reason Reason
	// Err is why the handler did not run, ran unguarded, or was not recorded.
	Err error
	// Reconciled: in this call Reconcile found out how an earlier attempt had ended, and so
	// it was replayed, or executed again. Not said of what is refused all the same.
	Reconciled bool
}

package reservation

import (
	"fmt"
	"time"
)

// Reason names why a call was refused. It is part of the API: callers branch on it,
// never on messages.
type Reason string

// The reasons of the state machine and of validation.
const (
	TenantInvalid      Reason = "TENANT_INVALID"
	NamespaceInvalid   Reason = "NAMESPACE_INVALID"
	KeyInvalid         Reason = "KEY_INVALID"
	FingerprintInvalid Reason = "FINGERPRINT_INVALID"
	TokenInvalid       Reason = "TOKEN_INVALID"
	DurationOutOfRange Reason = "DURATION_OUT_OF_RANGE"
	ResultInvalid      Reason = "RESULT_INVALID"
	CheckpointInvalid  Reason = "CHECKPOINT_INVALID"
	LabelInvalid       Reason = "LABEL_INVALID"
	TimeInvalid        Reason = "TIME_INVALID"
	EnumInvalid        Reason = "ENUM_INVALID"

	FingerprintMismatch Reason = "FINGERPRINT_MISMATCH"
	StaleToken          Reason = "STALE_TOKEN"
	AlreadyFinished     Reason = "ALREADY_FINISHED"
	TokenSpent          Reason = "TOKEN_SPENT"
	KeyMayHaveExpired   Reason = "KEY_MAY_HAVE_EXPIRED"
	NotUnresolved       Reason = "NOT_UNRESOLVED"
	LeaseCapReached     Reason = "LEASE_CAP_REACHED"
	AttemptsExhausted   Reason = "ATTEMPTS_EXHAUSTED"
	VersionConflict     Reason = "VERSION_CONFLICT"
	NotFound            Reason = "RESERVATION_NOT_FOUND"
	NotFinished         Reason = "NOT_FINISHED"
	ResultTooLarge      Reason = "RESULT_TOO_LARGE"
)

// The reasons of the rooms above: stores, engine, server and daemon.
const (
	BatchInvalid    Reason = "BATCH_INVALID"
	Unauthenticated Reason = "UNAUTHENTICATED"
	TenantForbidden Reason = "TENANT_FORBIDDEN"
	RoleRequired    Reason = "ROLE_REQUIRED"
	RateLimited     Reason = "RATE_LIMITED"
	QuotaExceeded   Reason = "QUOTA_EXCEEDED"
	// NotSettled is answered to a verdict that comes before its time.
	NotSettled       Reason = "NOT_SETTLED"
	PageInvalid      Reason = "PAGE_INVALID"
	StoreUnavailable Reason = "STORE_UNAVAILABLE"
	Draining         Reason = "DRAINING"
	Overloaded       Reason = "OVERLOADED"
	// RecordUnreadable is answered for an address whose record can't be decoded.
	// It is kept, reported by Check, and hides no other.
	RecordUnreadable Reason = "RECORD_UNREADABLE"
)

// Error is a refusal. Its message names the field and the limit and holds neither
// secrets nor another tenant's data.
type Error struct {
	Reason  Reason
	Field   string // the request field that was wrong, if one was
	Message string
	// Version is the current version, of VERSION_CONFLICT.
	Version int64
	// RetryAfter is when a retry can help; zero = a retry can't.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }

// Errorf makes an error about one field.
func Errorf(reason Reason, field, format string, args ...any) *Error {
	return &Error{Reason: reason, Field: field, Message: fmt.Sprintf(format, args...)}
}

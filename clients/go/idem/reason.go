package idem

// Reason is why a call was refused, as docs/api.md lists them. It is an error, so that
// errors.Is(err, idem.FingerprintMismatch) works.
type Reason string

// Error implements error.
func (r Reason) Error() string { return string(r) }

// The reasons.
const (
	TenantInvalid       Reason = "TENANT_INVALID"
	NamespaceInvalid    Reason = "NAMESPACE_INVALID"
	KeyInvalid          Reason = "KEY_INVALID"
	FingerprintInvalid  Reason = "FINGERPRINT_INVALID"
	TokenInvalid        Reason = "TOKEN_INVALID"
	DurationOutOfRange  Reason = "DURATION_OUT_OF_RANGE"
	ResultInvalid       Reason = "RESULT_INVALID"
	CheckpointInvalid   Reason = "CHECKPOINT_INVALID"
	LabelInvalid        Reason = "LABEL_INVALID"
	TimeInvalid         Reason = "TIME_INVALID"
	EnumInvalid         Reason = "ENUM_INVALID"
	BatchInvalid        Reason = "BATCH_INVALID"
	PageInvalid         Reason = "PAGE_INVALID"
	FingerprintMismatch Reason = "FINGERPRINT_MISMATCH"
	StaleToken          Reason = "STALE_TOKEN"
	AlreadyFinished     Reason = "ALREADY_FINISHED"
	TokenSpent          Reason = "TOKEN_SPENT"
	KeyMayHaveExpired   Reason = "KEY_MAY_HAVE_EXPIRED"
	NotUnresolved       Reason = "NOT_UNRESOLVED"
	LeaseCapReached     Reason = "LEASE_CAP_REACHED"
	AttemptsExhausted   Reason = "ATTEMPTS_EXHAUSTED"
	VersionConflict     Reason = "VERSION_CONFLICT"
	ReservationNotFound Reason = "RESERVATION_NOT_FOUND"
	NotSettled          Reason = "NOT_SETTLED"
	NotFinished         Reason = "NOT_FINISHED"
	Unauthenticated     Reason = "UNAUTHENTICATED"
	TenantForbidden     Reason = "TENANT_FORBIDDEN"
	RoleRequired        Reason = "ROLE_REQUIRED"
	RateLimited         Reason = "RATE_LIMITED"
	QuotaExceeded       Reason = "QUOTA_EXCEEDED"
	ResultTooLarge      Reason = "RESULT_TOO_LARGE"
	StoreUnavailable    Reason = "STORE_UNAVAILABLE"
	Draining            Reason = "DRAINING"
	Overloaded          Reason = "OVERLOADED"
	RecordUnreadable    Reason = "RECORD_UNREADABLE"
)

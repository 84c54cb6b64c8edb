package guard

// Need says what becomes of a call without a key.
type Need int

// The needs.
const (
	Required Need = iota
	Optional
	Off
)

// Ending is how a guarded call ended.
type Ending string

// The endings.
const (
	Executed   Ending = "executed"
	Unrecorded Ending = "unrecorded"
	Replayed   Ending = "replayed"
	Refused    Ending = "refused"
	Unguarded  Ending = "unguarded"
)

// Reason is why a call was answered by its guard, or what its guard adds to the answer.
type Reason string

// The reasons.
const (
	KeyRequired         Reason = "KEY_REQUIRED"
	KeyInvalid          Reason = "KEY_INVALID"
	RequestTooLarge     Reason = "REQUEST_TOO_LARGE"
	RequestRefused      Reason = "REQUEST_REFUSED"
	InProgress          Reason = "IN_PROGRESS"
	FingerprintMismatch Reason = "FINGERPRINT_MISMATCH"
	KeyMayHaveExpired   Reason = "KEY_MAY_HAVE_EXPIRED"
	OutcomeUnknown      Reason = "OUTCOME_UNKNOWN"
	NotExecuted         Reason = "NOT_EXECUTED"
	AnswerNotKept       Reason = "ANSWER_NOT_KEPT"
	NotRecorded         Reason = "NOT_RECORDED"
	NotStarted          Reason = "NOT_STARTED"
	Unavailable         Reason = "GUARD_UNAVAILABLE"
	Misconfigured       Reason = "GUARD_REFUSED"
	NoSuchRequest       Reason = "NO_SUCH_REQUEST"
)

// KeepKey is true where a repetition must carry the same key: in all doubt.
func KeepKey(r Reason) bool {
	switch r {
	case KeyRequired, KeyInvalid, RequestTooLarge, RequestRefused, FingerprintMismatch, AnswerNotKept:
		return false
	}
	return true
}

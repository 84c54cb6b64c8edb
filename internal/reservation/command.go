package reservation

import "time"

// Command is one call on one address: [*Reserve], [*Extend], [*Complete], [*Fail],
// [*Resolve], [*Erase] or [*Lookup]. Defaults are filled in before: a command is complete.
type Command interface {
	// Target is the address the command is about.
	Target() Address
	// Validate checks everything that needs neither a record nor a clock. Nothing
	// may be stored, nor a store be asked, for a command that it refuses.
	Validate() *Error

	// decide holds the rules. rec is nil where the address counts as absent;
	// expired is the record that may still lie there. A nil record in the answer
	// means that nothing changes.
	decide(now Time, rec, expired *Record) (*Record, Outcome)
}

// Reserve asks for the right to execute.
type Reserve struct {
	Address
	Fingerprint   Fingerprint
	Token         Token
	Lease         time.Duration
	LeaseCap      time.Duration // from the grant; by policy
	Retention     time.Duration
	OnLapse       LapsePolicy
	Attempts      int32 // allowed in all; by policy
	Owner         string
	PolicyVersion string
	// FirstAttemptAt is when the caller first tried; zero = not told.
	FirstAttemptAt Time
	// Trace is where this call is traced; that of a record's first grant is kept.
	Trace TraceContext
}

// Extend prolongs the lease of the current token.
type Extend struct {
	Address
	Token              Token
	Lease              time.Duration
	Checkpoint         []byte
	CheckpointSequence uint64
}

// Complete tells that the operation was done.
type Complete struct {
	Address
	Token     Token
	Result    Result
	Retention time.Duration // zero = what Reserve asked for
	// BodyRetention is how long the result's body is shown, counted from the finish;
	// zero = as long as the record. DropBody: it is not stored at all. Both by policy.
	BodyRetention time.Duration
	DropBody      bool
}

// Fail tells that the operation was not done, or that nobody knows.
type Fail struct {
	Address
	Token      Token
	Kind       OutcomeKind // ToldRetryable, ToldFinal or ToldUnknown
	Result     Result
	RetryAfter time.Duration
	Retention  time.Duration // zero = what Reserve asked for
	// BodyRetention and DropBody are as in Complete.
	BodyRetention time.Duration
	DropBody      bool
}

// Verdict is what somebody found out about an unresolved operation.
type Verdict uint8

// The verdicts.
const (
	VerdictSucceeded   Verdict = 1
	VerdictFailedFinal Verdict = 2
	VerdictNotExecuted Verdict = 3
)

// String is the verdict's name in the documentation.
func (v Verdict) String() string {
	return name(int(v), "UNSET", "SUCCEEDED", "FAILED_FINAL", "NOT_EXECUTED")
}

// State is what a verdict makes of a record.
func (v Verdict) State() State {
	switch v {
	case VerdictSucceeded:
		return Succeeded
	case VerdictFailedFinal:
		return FailedFinal
	case VerdictNotExecuted:
		return FailedRetryable
	}
	return Absent
}

// Resolve gives a verdict.
type Resolve struct {
	Address
	ExpectedVersion         int64
	Verdict                 Verdict
	Result                  *Result // nil with VerdictNotExecuted
	Actor, Reason, Evidence string
	BreakLease              bool
	// BodyRetention and DropBody are as in Complete.
	BodyRetention time.Duration
	DropBody      bool
}

// Erase removes what a finished record holds of its result, for good. What is left keeps
// the operation from being run again.
type Erase struct {
	Address
	ExpectedVersion int64 // zero = any
	Actor, Reason   string
}

// Lookup shows a record as Reserve would go by it.
type Lookup struct {
	Address
}

// Target implements Command.
func (a Address) Target() Address { return a }

// Outcome is what a command is answered: [*Owned], [*InProgress], [*Replay],
// [*Unresolved], [*Extended], [*Recorded], [*Found], or an [*Error].
type Outcome interface{ outcome() }

// Owned says: execute now.
type Owned struct {
	Attempt        int32
	Fence          int64
	LeaseExpiresAt Time
	LeaseRemaining time.Duration
	Takeover       bool
	Repeated       bool
	Checkpoint     []byte
	PolicyVersion  string
	LastFailure    *Result
	ReservedAt     Time // the first grant: which life of the key this is
}

// InProgress says: ask again later.
type InProgress struct {
	State          State
	Attempt        int32
	Owner          string
	LeaseExpiresAt Time
	RetryAfter     time.Duration
}

// Replay says: use this answer.
type Replay struct {
	State         State
	Result        *Result
	Attempt       int32
	ReservedAt    Time
	FinishedAt    Time
	ExpiresAt     Time
	PolicyVersion string
	Trace         TraceContext // of the first attempt
}

// Unresolved says: nobody knows how it ended.
type Unresolved struct {
	Since         Time
	Attempt       int32
	Owner         string
	Checkpoint    []byte
	Version       int64
	PolicyVersion string
	Elapsed       time.Duration // since Since, by the store's clock
}

// Extended says how long the lease lasts.
type Extended struct {
	LeaseExpiresAt Time
	LeaseRemaining time.Duration
	Clamped        bool
}

// Recorded says that the outcome or verdict is stored. ExpiresAt is zero where the record is
// never forgotten.
type Recorded struct {
	Version   int64
	ExpiresAt Time
	Repeated  bool
	State     State // of the record now
}

// Found is the record, and the state that Reserve would go by.
type Found struct {
	Record *Record
	Shown  State
	Now    Time // when it was shown
}

func (*Owned) outcome()      {}
func (*InProgress) outcome() {}
func (*Replay) outcome()     {}
func (*Unresolved) outcome() {}
func (*Extended) outcome()   {}
func (*Recorded) outcome()   {}
func (*Found) outcome()      {}
func (*Error) outcome()      {}

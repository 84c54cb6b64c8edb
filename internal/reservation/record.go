package reservation

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"
)

// Address says whose key it is. Nothing crosses tenants.
type Address struct {
	Tenant, Namespace, Key string
}

// Compare orders addresses byte for byte: by tenant, then namespace, then key.
func (a Address) Compare(b Address) int {
	if c := compareStrings(a.Tenant, b.Tenant); c != 0 {
		return c
	}
	if c := compareStrings(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return compareStrings(a.Key, b.Key)
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// State is where a record stands. Stored values never change their number.
type State uint8

// The states. Absent is never stored.
const (
	Absent          State = 0
	Processing      State = 1
	Succeeded       State = 2
	FailedFinal     State = 3
	FailedRetryable State = 4
	Unknown         State = 5
)

// String is the state's name in the documentation.
func (s State) String() string {
	return name(int(s), "ABSENT", "PROCESSING", "SUCCEEDED", "FAILED_FINAL", "FAILED_RETRYABLE", "UNKNOWN")
}

// Finished tells whether the retention of a record in this state runs.
func (s State) Finished() bool {
	return s == Succeeded || s == FailedFinal || s == FailedRetryable
}

// LapsePolicy says what an owner's silence past its lease means.
type LapsePolicy uint8

// The lapse policies. Zero = unset.
const (
	Hold  LapsePolicy = 1
	Rerun LapsePolicy = 2
)

// String is the policy's name in the documentation.
func (p LapsePolicy) String() string { return name(int(p), "UNSET", "HOLD", "RERUN") }

// OutcomeKind is what an owner said about an execution.
type OutcomeKind uint8

// The outcomes. Zero = none was told.
const (
	Completed     OutcomeKind = 1
	ToldRetryable OutcomeKind = 2
	ToldFinal     OutcomeKind = 3
	ToldUnknown   OutcomeKind = 4
)

// String is the outcome's name in the documentation.
func (k OutcomeKind) String() string {
	return name(int(k), "NONE", "COMPLETED", "FAILED_RETRYABLE", "FAILED_FINAL", "FAILED_UNKNOWN")
}

// Token is the caller's proof of ownership of one attempt. Records keep digests
// only: who reads a store or a backup can complete nothing.
type Token []byte

// TokenDigest is the first half of the SHA-256 of a token.
type TokenDigest [16]byte

// ShortDigest is the first quarter of the SHA-256 of a token, kept of earlier
// attempts and shown in evidence.
type ShortDigest [8]byte

// Digest is what a record keeps of the token.
func (t Token) Digest() TokenDigest {
	sum := sha256.Sum256(t)
	return TokenDigest(sum[:16])
}

// Short cuts a digest down to what is kept of earlier attempts.
func (d TokenDigest) Short() ShortDigest { return ShortDigest(d[:8]) }

// TraceContext is where a call was traced, as the W3C has it: 16 bytes of trace id, 8 of
// span id, 1 of flags. The zero value = nowhere.
type TraceContext [25]byte

// Fingerprint identifies what an operation means.
type Fingerprint struct {
	Scheme string
	Digest []byte
}

// Equal compares scheme and digest.
func (f Fingerprint) Equal(g Fingerprint) bool {
	return f.Scheme == g.Scheme && bytes.Equal(f.Digest, g.Digest)
}

// HistoryKind is the kind of a history entry.
type HistoryKind uint8

// The kinds of history entries. Zero = unset.
const (
	Takeover        HistoryKind = 1
	DeclaredUnknown HistoryKind = 2
	Resolved        HistoryKind = 3
	Overturned      HistoryKind = 4
	StaleOutcome    HistoryKind = 5
)

// String is the kind's name in the documentation.
func (k HistoryKind) String() string {
	return name(int(k), "UNSET", "TAKEOVER", "DECLARED_UNKNOWN", "RESOLVED", "OVERTURNED", "STALE_OUTCOME")
}

// HistoryEntry is one thing that happened off the plain path.
type HistoryEntry struct {
	At   Time
	Kind HistoryKind
	// Attempt and Owner are those the entry is about: of Takeover the attempt that
	// lapsed; of StaleOutcome the one whose token was refused, 0 for a stranger's.
	Attempt  int32
	Owner    string
	From, To State
	Outcome  OutcomeKind // DeclaredUnknown, Overturned, StaleOutcome
	// Actor, Reason and Evidence are those of a Resolve.
	Actor, Reason, Evidence string
	TokenDigest             ShortDigest  // StaleOutcome
	ResultDigest            ResultDigest // Resolved, StaleOutcome; zero = no result
}

// Record is a reservation as it is stored. Records are immutable: a transition
// makes a new one.
type Record struct {
	State       State
	Fingerprint Fingerprint
	// Attempt counts grants; AttemptsAllowed is fixed by the first Reserve and
	// raised only by a verdict.
	Attempt, AttemptsAllowed int32
	Fence                    int64
	Version                  int64
	// Token is the digest of the latest grant's token; Spent holds those of the
	// earlier ones, attempt 1 first.
	Token TokenDigest
	Spent []ShortDigest

	Owner         string
	OnLapse       LapsePolicy
	PolicyVersion string
	// TookOver: the latest grant followed a lapse.
	TookOver bool

	Checkpoint []byte
	// CheckpointSequence is the last one of this attempt.
	CheckpointSequence uint64

	Retention time.Duration

	ReservedAt     Time // the first grant
	LeaseExpiresAt Time // of the latest grant
	LeaseCapAt     Time // where Extend ends
	FinishedAt     Time // finished states only
	ExpiresAt      Time // finished states only
	RetryAt        Time // FailedRetryable only: not granted before
	UnknownSince   Time // Unknown only

	// Told is what the owner of the latest attempt said, as it said it. It may
	// differ from State: RETRYABLE on the last attempt is final, UNKNOWN under
	// RERUN is retryable.
	Told OutcomeKind
	// Judged: the state was set by Resolve.
	Judged bool

	// Result is what is replayed; before the finish, what the last failure told.
	Result *Result

	// ErasedAt is when an operator had the result removed; finished states only.
	ErasedAt Time

	// Trace is where the first attempt was traced.
	Trace TraceContext

	History        []HistoryEntry // all kinds but StaleOutcome
	Evidence       []HistoryEntry // StaleOutcome
	HistoryDropped int64
}

// Expired tells whether the record counts as absent: finished, and its retention is
// over, swept or not.
func (r *Record) Expired(now Time) bool { return r.State.Finished() && now >= r.ExpiresAt }

// Lapsed tells whether an owner is silent past its lease.
func (r *Record) Lapsed(now Time) bool { return r.State == Processing && now >= r.LeaseExpiresAt }

// AttemptsLeft tells whether another attempt may be granted.
func (r *Record) AttemptsLeft() bool { return r.Attempt < r.AttemptsAllowed }

// Unresolved tells whether nobody knows how the operation ended and nobody may
// repeat it.
func (r *Record) Unresolved(now Time) bool {
	if r.State == Unknown {
		return true
	}
	return r.Lapsed(now) && (r.OnLapse == Hold || !r.AttemptsLeft())
}

// UnresolvedSince is since when the record is unresolved: the end of the lapsed lease, or
// when it was declared unknown; zero = it is not.
func (r *Record) UnresolvedSince(now Time) Time {
	switch {
	case !r.Unresolved(now):
		return 0
	case r.State == Processing:
		return r.LeaseExpiresAt
	}
	return r.UnknownSince
}

// Shown is the state that Reserve goes by and Lookup shows.
func (r *Record) Shown(now Time) State {
	switch {
	case r == nil || r.Expired(now):
		return Absent
	case r.Unresolved(now):
		return Unknown
	}
	return r.State
}

// BodyExpiresAt is from when on the result is shown without its body; zero = never while
// the record lasts. Only finished records forget it: what was told of an operation under
// way, or that nobody knows the end of, is needed to settle it.
func (r *Record) BodyExpiresAt() Time {
	if !r.State.Finished() || r.Result == nil || len(r.Result.Body) == 0 || r.Result.BodyRetention == 0 {
		return 0
	}
	if at := r.FinishedAt.Add(r.Result.BodyRetention); at < r.ExpiresAt {
		return at
	}
	return 0
}

// BodyExpired tells whether the result is shown without its body, stripped or not.
func (r *Record) BodyExpired(now Time) bool {
	at := r.BodyExpiresAt()
	return at != 0 && now >= at
}

// WithoutBody is the record with its result's body taken out: what a store may keep of
// one whose body has expired. Nothing that is told of it changes.
func (r *Record) WithoutBody() *Record {
	less := *r
	less.Result = r.Result.WithoutBody()
	return &less
}

// shownAt is the record as it is shown.
func (r *Record) shownAt(now Time) *Record {
	if r.BodyExpired(now) {
		return r.WithoutBody()
	}
	return r
}

// attemptOf finds the attempt that a token was granted; 0 = the record never had it.
func (r *Record) attemptOf(token TokenDigest) int32 {
	if token == r.Token {
		return r.Attempt
	}
	if i := slices.Index(r.Spent, token.Short()); i >= 0 {
		return int32(i) + 1
	}
	return 0
}

// change copies the record for a transition and counts it.
func (r *Record) change() *Record {
	next := *r
	next.Version++
	return &next
}

func name(i int, names ...string) string {
	if i < 0 || i >= len(names) {
		return "INVALID"
	}
	return names[i]
}

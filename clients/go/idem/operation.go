package idem

import (
	"context"
	"crypto/sha256"
	"time"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Mode is named after the effect: it says what silence and undeclared errors mean.
type Mode int

const (
	// External effects happen outside: a charge, a mail. An owner that falls silent, an
	// error that was not declared and a panic may all have left it done, so nobody
	// repeats it before somebody has found out.
	External Mode = iota
	// Transactional effects commit in one database transaction, and an error means that
	// it was rolled back; if the commit's own outcome is not known, declare it: [Unknown].
	// An owner that falls silent is followed by another attempt, though it may have
	// committed and died before it could tell, or may only be paused. So of all attempts
	// one must commit, and the others must be given its result: package fence, in
	// clients/go/messaging, does that on PostgreSQL.
	Transactional
)

func (m Mode) onLapse() idemdv1.LapsePolicy {
	if m == Transactional {
		return idemdv1.LapsePolicy_LAPSE_POLICY_RERUN
	}
	return idemdv1.LapsePolicy_LAPSE_POLICY_HOLD
}

// Defaults of an Operation.
const (
	// DefaultWait is longer than the default lease: an owner that falls silent is
	// noticed within it.
	DefaultWait = 50 * time.Second
	// DefaultMinRemaining is the least time in which an effect is started.
	DefaultMinRemaining = 100 * time.Millisecond
	// DefaultSettle is the daemon's default lease.
	DefaultSettle = 30 * time.Second
)

// Operation is one intended effect.
type Operation struct {
	// Tenant and Namespace say where the key belongs; empty is the client's.
	Tenant, Namespace string
	// Key names this intended operation: the SAME on every retry of it, another for
	// every other one. 1-255 bytes of printable ASCII without spaces. Required.
	Key string
	// Fingerprint says what is meant, so that the key is not used for something else.
	// Required.
	Fingerprint Fingerprint
	// Mode says what kind of effect it is. Default External.
	Mode Mode
	// Lease is how long the owner may stay silent, 100 ms - 1 h; it is extended while
	// the function runs. An extension counts as lost after a quarter of it, so choose
	// more than four times the daemon's slowest answer; below 300 ms one lost answer
	// loses it. Zero = the namespace's policy (30 s).
	Lease time.Duration
	// Retention is how long the result is replayed, 1 s - 400 d. Zero = the namespace's
	// policy (7 d).
	Retention time.Duration
	// Wait is how long in all to wait for another owner, or for the settle time. Zero =
	// DefaultWait; negative = not at all. The context bounds it, too.
	Wait time.Duration
	// MinRemaining: nothing is reserved, waited for or begun when the context's deadline
	// is nearer than this. Zero = DefaultMinRemaining; negative = whatever is left.
	MinRemaining time.Duration
	// PolicyVersion names the business rules, at most 64 bytes; the first attempt pins
	// it, and [Grant] has the pinned one.
	PolicyVersion string
	// FirstAttemptAt is when the operation was first tried. Zero = when Do is called.
	// Who retries across processes passes the original time ([KeyTime] of a key that
	// [NewKey] made), so that a retry which comes after the retention is refused
	// instead of run as new.
	FirstAttemptAt time.Time
	// Reconcile finds out whether an operation of unknown outcome was done, by asking
	// the outside world. It may be called several times. Nil = Do returns an
	// *UnresolvedError.
	Reconcile func(context.Context, *Unresolved) (Verdict, error)
	// Settle is how long after the lapse an owner that was only paused, or its request
	// on its way, may still act: until then "not executed" counts for nothing. Zero =
	// the lease, or DefaultSettle where that is zero.
	Settle time.Duration
}

// Fingerprint identifies what an operation means.
type Fingerprint struct {
	// Scheme says how the digest was made, with its version: 1-32 bytes of
	// a-z 0-9 . _ -.
	Scheme string
	// Digest is 16-64 bytes.
	Digest []byte
}

// SHA256 is the fingerprint of a request in a canonical form: without what changes from
// try to try, the same bytes for the same meaning.
func SHA256(scheme string, canonical []byte) Fingerprint {
	digest := sha256.Sum256(canonical)
	return Fingerprint{Scheme: scheme, Digest: digest[:]}
}

// waits is how long Do may wait in all.
func (op *Operation) waits() time.Duration {
	if op.Wait == 0 {
		return DefaultWait
	}
	return max(op.Wait, 0)
}

func (op *Operation) minRemaining() time.Duration {
	if op.MinRemaining == 0 {
		return DefaultMinRemaining
	}
	return max(op.MinRemaining, 0)
}

func (op *Operation) settle() time.Duration {
	switch {
	case op.Settle > 0:
		return op.Settle
	case op.Lease > 0:
		return op.Lease
	}
	return DefaultSettle
}

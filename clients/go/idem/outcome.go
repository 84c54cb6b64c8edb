package idem

import (
	"slices"
	"time"
	"unicode/utf8"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// maxErrorTextBytes is how much of a final error's text is stored.
const maxErrorTextBytes = 4 << 10

// Answer is what a finished operation is answered with.
type Answer struct {
	// Result is what the function returned, or what is replayed: byte for byte, unless
	// it was too large to be kept. Never nil.
	Result *Result
	// Replayed: an earlier call had finished it, this one has executed nothing.
	Replayed bool
	// Attempt is the one that finished it.
	Attempt int32
	// Fence is that of this call's attempt; 0 on a replay.
	Fence int64
	// ReservedAt and FinishedAt are the daemon's times, of a replay; else zero.
	ReservedAt, FinishedAt time.Time
	// ExpiresAt is until when it is replayed; zero where it is not recorded.
	ExpiresAt time.Time
	// PolicyVersion is the one that it ran under.
	PolicyVersion string
	// Unrecorded is set if it is done and the result is real, but the daemon could not
	// be told (yet): a repetition may hear UNRESOLVED, or under Transactional run again
	// under a higher fence. It can be told in the background, for 2 minutes.
	Unrecorded error
}

// declared is an error of which the function said what it means.
type declared struct {
	kind idemdv1.FailureKind
	err  error
}

// Error implements error.
func (d *declared) Error() string { return d.err.Error() }

// Unwrap implements errors.Is.
func (d *declared) Unwrap() error { return d.err }

// NotExecuted declares that the effect has certainly not happened: it may be tried
// again. NotExecuted(nil) is nil. Joined with errors that don't say the same, it counts
// for nothing: declare the whole.
func NotExecuted(err error) error { return declare(idemdv1.FailureKind_FAILURE_KIND_RETRYABLE, err) }

// Final declares that the effect was refused for good: every later caller is told so,
// with the result that the function returned, or else the error's text (its first
// 4 KiB). Final(nil) is nil.
func Final(err error) error { return declare(idemdv1.FailureKind_FAILURE_KIND_FINAL, err) }

// Unknown declares that the effect may have happened. Unknown(nil) is nil.
func Unknown(err error) error { return declare(idemdv1.FailureKind_FAILURE_KIND_UNKNOWN, err) }

func declare(kind idemdv1.FailureKind, err error) error {
	if err == nil {
		return nil
	}
	return &declared{kind: kind, err: err}
}

// outcome is how an attempt ended, as the daemon is told.
type outcome struct {
	// failed is unspecified where the effect was done.
	failed idemdv1.FailureKind
	result *Result
}

// outcomeOf says what the function's ending means in a mode.
func outcomeOf(mode Mode, result *Result, err error) outcome {
	o := outcome{result: result}
	if err == nil {
		return o
	}
	undeclared := idemdv1.FailureKind_FAILURE_KIND_UNKNOWN
	if mode == Transactional {
		undeclared = idemdv1.FailureKind_FAILURE_KIND_RETRYABLE
	}
	o.failed = meaning(err, undeclared)
	if o.failed == idemdv1.FailureKind_FAILURE_KIND_FINAL && result == nil {
		o.result = textResult(err.Error())
	}
	return o
}

// meaning is what the function declared, or else what it means that it did not. Of an
// error that holds several each is asked: where they don't agree, nobody knows. Errors of a
// Do within it end the search: what they hold was declared about another operation.
func meaning(err error, undeclared idemdv1.FailureKind) idemdv1.FailureKind {
	switch e := err.(type) { //nolint:errorlint // it walks the chain itself
	case *declared:
		return e.kind
	case *FinalError, *NotExecutedError, *UnresolvedError, *InProgressError:
		return undeclared
	case interface{ Unwrap() error }:
		return meaning(e.Unwrap(), undeclared)
	case interface{ Unwrap() []error }:
		return common(e.Unwrap(), undeclared)
	}
	return undeclared
}

func common(errs []error, undeclared idemdv1.FailureKind) idemdv1.FailureKind {
	if len(errs) == 0 {
		return undeclared
	}
	first := meaning(errs[0], undeclared)
	for _, err := range errs[1:] {
		if meaning(err, undeclared) != first {
			return idemdv1.FailureKind_FAILURE_KIND_UNKNOWN
		}
	}
	return first
}

// Declared says whether an error that a function would return declares itself what it
// means, anywhere in it: for who adds a meaning only where there is none.
func Declared(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the chain itself
	case *declared:
		return true
	case *FinalError, *NotExecutedError, *UnresolvedError, *InProgressError:
		return false
	case interface{ Unwrap() error }:
		return Declared(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), Declared)
	}
	return false
}

func textResult(text string) *Result {
	text = text[:min(len(text), maxErrorTextBytes)]
	for text != "" && !utf8.ValidString(text) && len(text) > maxErrorTextBytes-utf8.UTFMax {
		text = text[:len(text)-1] // a character that was cut in two
	}
	return &Result{ContentType: "text/plain; charset=utf-8", Body: []byte(text)}
}

package fingerprint

import "fmt"

// Problem says why something has no canonical form.
type Problem string

// The problems. Offsets are of JSON documents; elsewhere they are 0.
const (
	// TooLarge: more than MaxBytes, which is always refused, a JSON document of more than
	// MaxCanonicalBytes, or a query or form of more than 10,000 pairs.
	TooLarge Problem = "too-large"
	// TooDeep: nested deeper than MaxDepth.
	TooDeep Problem = "too-deep"
	// InvalidUTF8: bytes that are no UTF-8.
	InvalidUTF8 Problem = "invalid-utf-8"
	// InvalidSyntax: not one JSON value, or half a surrogate pair in a string; a query or
	// form that can't be read.
	InvalidSyntax Problem = "invalid-syntax"
	// DuplicateName: two members of one name in an object.
	DuplicateName Problem = "duplicate-name"
	// CaseTwins: two names in an object that differ in case only. In strict mode only.
	CaseTwins Problem = "case-twins"
	// InexactNumber: a number that a double does not hold as it is written, or not below
	// 2^53. Send it as a string, or name it in Rules.Decimals.
	InexactNumber Problem = "inexact-number"
	// NothingIncluded: none of Rules.Include is there.
	NothingIncluded Problem = "nothing-included"
	// UnknownType: a google.protobuf.Any of a type that this program does not know, or
	// with a value that is none of its type.
	UnknownType Problem = "unknown-type"
)

// RefusedError says what has no fingerprint, or none in strict mode, and where. What was
// refused is not in it: it may be a secret.
type RefusedError struct {
	Problem Problem
	// Offset is where in the JSON document, in bytes.
	Offset int64
}

// Error implements error.
func (e *RefusedError) Error() string {
	switch e.Problem {
	case TooLarge:
		return fmt.Sprintf("fingerprint: too large: at most %d bytes, of JSON %d, of a query or form %d pairs", MaxBytes, MaxCanonicalBytes, maxPairs)
	case TooDeep:
		return fmt.Sprintf("fingerprint: nested deeper than %d, at byte %d", MaxDepth, e.Offset)
	case NothingIncluded, UnknownType:
		return "fingerprint: " + string(e.Problem)
	}
	return fmt.Sprintf("fingerprint: %s at byte %d", e.Problem, e.Offset)
}

package reservation

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// Header is one header of a result, kept byte for byte.
type Header struct {
	Name  string
	Value []byte
}

// Result is what is replayed.
type Result struct {
	Status      int32
	Headers     []Header
	ContentType string
	Body        []byte
	BodyOmitted bool
	BodyRef     string
	DecisionID  string

	// BodyRetention is how long the body is shown, counted from the finish; zero = as
	// long as the record. Set by policy, never by callers.
	BodyRetention time.Duration
	// Whole is the digest of the result as it was told, where its body has been taken
	// out since; zero = nothing has.
	Whole ResultDigest
}

// Equal compares every byte that is replayed. A result whose body has been taken out
// equals the one that was told.
func (r *Result) Equal(o *Result) bool {
	if r == nil || o == nil {
		return r == o
	}
	if r.Whole != (ResultDigest{}) || o.Whole != (ResultDigest{}) {
		return r.Digest() == o.Digest()
	}
	return r.Status == o.Status && r.ContentType == o.ContentType &&
		bytes.Equal(r.Body, o.Body) && r.BodyOmitted == o.BodyOmitted &&
		r.BodyRef == o.BodyRef && r.DecisionID == o.DecisionID &&
		slices.EqualFunc(r.Headers, o.Headers, func(a, b Header) bool {
			return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
		})
}

// ResultDigest identifies a result in the history: the first half of the SHA-256 of
// its fields, each behind its length.
type ResultDigest [16]byte

// Digest is the result's identity in the history: that of what was told.
func (r *Result) Digest() ResultDigest {
	if r.Whole != (ResultDigest{}) {
		return r.Whole
	}
	hash := sha256.New()
	var number [8]byte
	put := func(field []byte) {
		binary.BigEndian.PutUint64(number[:], uint64(len(field)))
		hash.Write(number[:])
		hash.Write(field)
	}
	binary.BigEndian.PutUint64(number[:], uint64(int64(r.Status)))
	hash.Write(number[:])
	put([]byte(r.ContentType))
	put(r.Body)
	if r.BodyOmitted {
		put([]byte{1})
	} else {
		put(nil)
	}
	put([]byte(r.BodyRef))
	put([]byte(r.DecisionID))
	for _, h := range r.Headers {
		put([]byte(h.Name))
		put(h.Value)
	}
	return ResultDigest(hash.Sum(nil)[:16])
}

// WithoutBody is the result with its body taken out; the digest of the whole stays, so
// that the same result told again is known. r itself is not changed.
func (r *Result) WithoutBody() *Result {
	if len(r.Body) == 0 {
		return r
	}
	less := *r
	less.Whole, less.Body, less.BodyOmitted, less.BodyRetention = r.Digest(), nil, true, 0
	return &less
}

// keptBy is what is stored of a result under a policy on bodies.
func (r *Result) keptBy(retention time.Duration, drop bool) *Result {
	switch {
	case r == nil || len(r.Body) == 0:
		return r
	case drop:
		return r.WithoutBody()
	case retention > 0:
		kept := *r
		kept.BodyRetention = wholeMicros(retention)
		return &kept
	}
	return r
}

package fingerprint

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/idemd/idemd/clients/go/idem"
)

// Schemes: how a digest was made. What a scheme means never changes; another way gets
// another name.
const (
	SchemeJSON  = "json-v1"
	SchemeProto = "proto-v1"
	SchemeHTTP  = "http-v1"
	// The raw schemes are those of what has no canonical form: the bytes themselves
	// count, so that a retry must send the same ones.
	SchemeJSONRaw  = "json-raw-v1"
	SchemeProtoRaw = "proto-raw-v1"
	SchemeHTTPRaw  = "http-raw-v1"
)

// Limits.
const (
	// MaxBytes is the largest document, message or body of which a fingerprint is made.
	MaxBytes = 8 << 20
	// MaxCanonicalBytes is the largest JSON document that is brought to its canonical
	// form; a larger one is hashed raw.
	MaxCanonicalBytes = 1 << 20
	// MaxDepth is how deep objects, arrays and messages may be nested: a JSON document
	// that is deeper is hashed raw, a message refused.
	MaxDepth = 128
)

// Rules say what counts. The zero value: everything, as it is. They are no part of the
// digest themselves: a new exclusion changes nothing for requests without that field.
//
// Paths of JSON are JSON pointers (RFC 6901): "/customer/email". On an array the token
// "*" stands for each element. Paths of protobuf are field names with dots between them:
// "customer.email"; they go through each element of a repeated field and each value of a
// map. A path of JSON that is not there is no error, so look twice at how it is spelt.
type Rules struct {
	// Operation names what is to be done ("charge-v1", a full gRPC method), so that one
	// key can't be used for two operations. Raise its version when the other rules
	// change what old requests mean.
	Operation string
	// Include: only these count, with all that is in them. A JSON document that has none
	// of them is hashed raw.
	Include []string
	// Exclude: these don't count: time stamps, attempt numbers, tracing. It goes before
	// Include.
	Exclude []string
	// Decimals are amounts: "10", "10.00", 10 and 1e1 are equal, in strings and numbers,
	// of any size. See [Decimal].
	Decimals []string
	// Times are RFC 3339 times: the same instant is equal, in any zone. See [Time].
	Times []string
	// Emails are addresses whose case and outer space don't matter. See [Email].
	Emails []string
	// Defaults are values, by path, as JSON text (`"EUR"`, `0`, `null`): a member or
	// field that has it is the same as none.
	Defaults map[string]string
	// Strict refuses, with a *RefusedError, what would be hashed raw, and JSON objects
	// with names that differ in case only: some decoders take them for one.
	Strict bool
}

// sum is the fingerprint of the parts, each behind its length: 8 bytes, big endian. The
// scheme comes first, so that no two schemes have a digest in common.
func sum(scheme string, parts ...[]byte) idem.Fingerprint {
	hash := sha256.New()
	length := frame(nil, []byte("idemd-"+scheme))
	hash.Write(length)
	for _, part := range parts {
		length = binary.BigEndian.AppendUint64(length[:0], uint64(len(part)))
		hash.Write(length)
		hash.Write(part)
	}
	return idem.Fingerprint{Scheme: scheme, Digest: hash.Sum(nil)}
}

// frame appends the parts, each behind its length.
func frame(to []byte, parts ...[]byte) []byte {
	more := 0
	for _, part := range parts {
		more += 8 + len(part)
	}
	to = slices.Grow(to, more)
	for _, part := range parts {
		to = binary.BigEndian.AppendUint64(to, uint64(len(part)))
		to = append(to, part...)
	}
	return to
}

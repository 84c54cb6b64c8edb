// Package fingerprint says what a request means, in a digest: equal for retries of one
// operation, whatever serialised them, and different for everything else. Rules, schemes
// and the exact bytes that are hashed are in docs/fingerprints.md; vectors.json has
// inputs and digests for other languages.
//
// It may import idem, protobuf, go-json-experiment's jsontext (the standard library's
// from Go 1.27 on) and the standard library.
package fingerprint

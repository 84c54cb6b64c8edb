package idem

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// NewKey makes a key for a new operation that has no name of its own: a UUID of version 7
// (RFC 9562, 5.7), which has the time in it, read back by [KeyTime]. Make it once, where
// the operation begins, and store it: a key made anew for each try guards nothing.
func NewKey() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: see crypto/rand
	var stamp [8]byte
	binary.BigEndian.PutUint64(stamp[:], uint64(time.Now().UnixMilli()))
	copy(id[:6], stamp[2:])
	return formatUUID(id, 7)
}

// KeyTime reads the time, in milliseconds, at which a key was made by [NewKey], or
// anybody else's UUID of version 7: what Operation.FirstAttemptAt asks for. False: the
// key has no time in it. It is the clock of whoever made the key: don't read it from
// keys of strangers.
func KeyTime(key string) (time.Time, bool) {
	id, err := hex.DecodeString(strings.ReplaceAll(key, "-", ""))
	if err != nil || len(id) != 16 || id[6]>>4 != 7 || id[8]>>6 != 2 || !strings.EqualFold(key, formatUUID([16]byte(id), 7)) {
		return time.Time{}, false
	}
	stamp := append([]byte{0, 0}, id[:6]...)
	return time.UnixMilli(int64(binary.BigEndian.Uint64(stamp))), true
}

// DeriveKey makes a key for something that belongs to a parent: a UUID of version 8, the
// same for the same parts in the same order. Where the parent is a key, name its tenant
// and namespace too: [Grant.DeriveKey] is DeriveKey(tenant, namespace, key, label).
func DeriveKey(parent string, parts ...string) string {
	sum := digest(append([]string{"idemd-derive-v1", parent}, parts...))
	return formatUUID([16]byte(sum[:16]), 8)
}

// DeterministicID names a thing by what it is made of: prefix, "_" and 32 hexadecimal
// digits, the same for the same prefix and parts in the same order. The parts count byte
// for byte, so normalise them first, each in one way for ever.
//
// Don't use it where the same parts may rightly occur twice: the second order of the
// same goods would be the first one. Nor for parts that must not be found out: few or
// well-known ones can be guessed and tried.
func DeterministicID(prefix string, parts ...string) string {
	sum := digest(append([]string{"idemd-id-v1", prefix}, parts...))
	return fmt.Sprintf("%s_%x", prefix, sum[:16])
}

// digest is the SHA-256 of the parts, each behind its length: 8 bytes, big endian.
func digest(parts []string) [sha256.Size]byte {
	var framed []byte
	for _, part := range parts {
		framed = binary.BigEndian.AppendUint64(framed, uint64(len(part)))
		framed = append(framed, part...)
	}
	return sha256.Sum256(framed)
}

// formatUUID stamps the version and the variant on the bytes.
func formatUUID(id [16]byte, version byte) string {
	id[6] = id[6]&0x0f | version<<4
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

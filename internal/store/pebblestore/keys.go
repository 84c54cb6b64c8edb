package pebblestore

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/idemd/idemd/internal/reservation"
)

// The first byte of a key says what the entry is. Written to disk: never reused.
const (
	prefixAudit  = 'a' // a, id → the entry: one for each act of an operator
	prefixBody   = 'b' // b, when the body expires, address → nothing: one for each result whose body goes first
	prefixExpiry = 'e' // e, expires_at, address → nothing: one for each finished record
	prefixMeta   = 'm' // m, name → 8 bytes
	prefixOpen   = 'o' // o, address → nothing: one for each record that is PROCESSING or UNKNOWN
	prefixRecord = 'r' // r, address → the record
)

// The meta entries.
const (
	metaFormat   = "format"   // which of these layouts the directory is in
	metaClock    = "clock"    // no time beyond this one was ever told (clock.go)
	metaFinished = "finished" // how many entries the expiry index has
)

// separator ends tenant and namespace. Neither can hold it, nor a byte below it, so
// that the byte order of keys is that of Address.Compare.
const separator = 0x00

var errKey = errors.New("key of an unknown form")

func appendAddress(key []byte, a reservation.Address) []byte {
	key = append(key, a.Tenant...)
	key = append(key, separator)
	key = append(key, a.Namespace...)
	key = append(key, separator)
	return append(key, a.Key...)
}

func addressKey(prefix byte, a reservation.Address) []byte {
	key := make([]byte, 0, 1+len(a.Tenant)+1+len(a.Namespace)+1+len(a.Key))
	return appendAddress(append(key, prefix), a)
}

func recordKey(a reservation.Address) []byte { return addressKey(prefixRecord, a) }

func openKey(a reservation.Address) []byte { return addressKey(prefixOpen, a) }

// expiryKey sorts by time first. Times are positive: their unsigned order is theirs.
func expiryKey(at reservation.Time, a reservation.Address) []byte {
	return timedKey(prefixExpiry, at, a)
}

func timedKey(prefix byte, at reservation.Time, a reservation.Address) []byte {
	key := make([]byte, 0, 1+8+len(a.Tenant)+1+len(a.Namespace)+1+len(a.Key))
	key = binary.BigEndian.AppendUint64(append(key, prefix), uint64(at))
	return appendAddress(key, a)
}

// auditKey sorts by id; ids are positive.
func auditKey(id int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixAudit}, uint64(id))
}

func parseAuditKey(key []byte) (id int64, err error) {
	if len(key) != 1+8 {
		return 0, errKey
	}
	return int64(binary.BigEndian.Uint64(key[1:])), nil
}

func metaKey(name string) []byte { return append([]byte{prefixMeta}, name...) }

// indexKey is the one index entry that belongs to a record; nil record: nil.
func indexKey(a reservation.Address, rec *reservation.Record) []byte {
	switch {
	case rec == nil:
		return nil
	case rec.State.Finished():
		return expiryKey(rec.ExpiresAt, a)
	}
	return openKey(a)
}

// bodyKey is the index entry of a result whose body expires before its record; nil = it
// does not.
func bodyKey(a reservation.Address, rec *reservation.Record) []byte {
	if rec == nil || rec.BodyExpiresAt() == 0 {
		return nil
	}
	return timedKey(prefixBody, rec.BodyExpiresAt(), a)
}

// parseAddress reads what appendAddress wrote.
func parseAddress(b []byte) (reservation.Address, error) {
	tenant, rest, found := bytes.Cut(b, []byte{separator})
	namespace, key, found2 := bytes.Cut(rest, []byte{separator})
	if !found || !found2 {
		return reservation.Address{}, errKey
	}
	return reservation.Address{Tenant: string(tenant), Namespace: string(namespace), Key: string(key)}, nil
}

// parseAddressKey reads a key of the record range or the open index.
func parseAddressKey(key []byte) (reservation.Address, error) { return parseAddress(key[1:]) }

// parseTimedKey reads a key of the expiry index or the index of bodies.
func parseTimedKey(key []byte) (reservation.Time, reservation.Address, error) {
	if len(key) < 1+8 {
		return 0, reservation.Address{}, errKey
	}
	address, err := parseAddress(key[1+8:])
	return reservation.Time(binary.BigEndian.Uint64(key[1:])), address, err
}

// after is the smallest key behind key.
func after(key []byte) []byte { return append(bytes.Clone(key), 0) }

// span is a range of keys: from lower up to, not including, upper.
type span struct{ lower, upper []byte }

// prefixSpan holds all keys of one kind.
func prefixSpan(prefix byte) span { return span{[]byte{prefix}, []byte{prefix + 1}} }

// tenantSpan holds the addresses of a tenant, or of one of its namespaces; empty
// names = all.
func tenantSpan(prefix byte, tenant, namespace string) span {
	if tenant == "" {
		return prefixSpan(prefix)
	}
	lower := append([]byte{prefix}, tenant...)
	if namespace != "" {
		lower = append(append(lower, separator), namespace...)
	}
	upper := append(bytes.Clone(lower), separator+1)
	return span{append(lower, separator), upper}
}

// dueSpan holds the entries, of the index that position lies in, of what has expired by
// now, from position on.
func dueSpan(position []byte, now reservation.Time) span {
	upper := binary.BigEndian.AppendUint64([]byte{position[0]}, uint64(now)+1)
	return span{position, upper}
}

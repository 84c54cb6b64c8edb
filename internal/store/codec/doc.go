// Package codec is the stored form of records: a version byte, then fields in the
// protobuf wire format (https://protobuf.dev/programming-guides/encoding/), which
// skips fields it does not know. Golden files under testdata guard it: a byte that
// was ever stored must stay readable.
//
// Both stores use it: pebblestore for whole records, pgstore for what it keeps in
// bytea columns (result, history). It may import package reservation and protowire.
package codec

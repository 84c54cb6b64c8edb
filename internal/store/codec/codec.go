package codec

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idemd/idemd/internal/reservation"
)

// version is the first byte of everything stored. A reader refuses a higher one: it
// is older than what it reads.
const version = 1

var errMalformed = errors.New("malformed bytes")

// writer appends fields; zero values are left out.
type writer struct{ buf []byte }

func newWriter(size int) *writer {
	return &writer{buf: append(make([]byte, 0, size), version)}
}

func (w *writer) uint(field protowire.Number, v uint64) {
	if v != 0 {
		w.buf = protowire.AppendTag(w.buf, field, protowire.VarintType)
		w.buf = protowire.AppendVarint(w.buf, v)
	}
}

func (w *writer) int(field protowire.Number, v int64) { w.uint(field, protowire.EncodeZigZag(v)) }

func (w *writer) bool(field protowire.Number, v bool) { w.uint(field, protowire.EncodeBool(v)) }

func (w *writer) string(field protowire.Number, v string) {
	if v != "" {
		w.buf = protowire.AppendTag(w.buf, field, protowire.BytesType)
		w.buf = protowire.AppendString(w.buf, v)
	}
}

func (w *writer) bytes(field protowire.Number, v []byte) {
	if len(v) > 0 {
		w.message(field, v)
	}
}

// message is like bytes, but writes an empty value too.
func (w *writer) message(field protowire.Number, v []byte) {
	w.buf = protowire.AppendTag(w.buf, field, protowire.BytesType)
	w.buf = protowire.AppendBytes(w.buf, v)
}

// value is one field as read: number for varints, bytes for the rest.
type value struct {
	number uint64
	bytes  []byte
}

func (v value) int() int64              { return protowire.DecodeZigZag(v.number) }
func (v value) time() reservation.Time  { return reservation.Time(v.int()) }
func (v value) duration() time.Duration { return time.Duration(v.int()) * time.Microsecond }
func (v value) string() string          { return string(v.bytes) }

// read calls set for every field of data.
func read(data []byte, set func(field protowire.Number, v value) error) error {
	if len(data) == 0 {
		return errMalformed
	}
	if data[0] != version {
		return fmt.Errorf("stored in version %d, this program reads version %d", data[0], version)
	}
	for data = data[1:]; len(data) > 0; {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errMalformed
		}
		data = data[n:]
		var v value
		switch kind {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return errMalformed
		}
		data = data[n:]
		if err := set(field, v); err != nil {
			return err
		}
	}
	return nil
}

// array copies bytes into a fixed-size array and refuses another length.
func array(dst, src []byte) error {
	if len(src) != len(dst) {
		return errMalformed
	}
	copy(dst, src)
	return nil
}

// clone keeps nil for empty, so that a record reads back as it was.
func clone(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

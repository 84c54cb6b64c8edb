package codec

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idemd/idemd/internal/reservation"
)

// Field numbers of a result and of a header. Never reused, never renumbered.
const (
	fieldStatus      = 1
	fieldHeader      = 2
	fieldContentType = 3
	fieldBody        = 4
	fieldBodyOmitted = 5
	fieldBodyRef     = 6
	fieldDecisionID  = 7

	fieldBodyRetention = 8
	fieldWhole         = 9

	fieldHeaderName  = 1
	fieldHeaderValue = 2
)

// EncodeResult is the stored form of a result.
func EncodeResult(r *reservation.Result) []byte {
	w := newWriter(32 + len(r.Body))
	w.int(fieldStatus, int64(r.Status))
	for _, h := range r.Headers {
		header := newWriter(8 + len(h.Name) + len(h.Value))
		header.string(fieldHeaderName, h.Name)
		header.bytes(fieldHeaderValue, h.Value)
		w.message(fieldHeader, header.buf)
	}
	w.string(fieldContentType, r.ContentType)
	w.bytes(fieldBody, r.Body)
	w.bool(fieldBodyOmitted, r.BodyOmitted)
	w.string(fieldBodyRef, r.BodyRef)
	w.string(fieldDecisionID, r.DecisionID)
	w.int(fieldBodyRetention, r.BodyRetention.Microseconds())
	if r.Whole != (reservation.ResultDigest{}) {
		w.bytes(fieldWhole, r.Whole[:])
	}
	return w.buf
}

// DecodeResult reads what EncodeResult wrote. The result shares no memory with data.
func DecodeResult(data []byte) (*reservation.Result, error) {
	r := new(reservation.Result)
	err := read(data, func(field protowire.Number, v value) error {
		switch field {
		case fieldStatus:
			r.Status = int32(v.int())
		case fieldHeader:
			header, err := decodeHeader(v.bytes)
			if err != nil {
				return err
			}
			r.Headers = append(r.Headers, header)
		case fieldContentType:
			r.ContentType = v.string()
		case fieldBody:
			r.Body = clone(v.bytes)
		case fieldBodyOmitted:
			r.BodyOmitted = protowire.DecodeBool(v.number)
		case fieldBodyRef:
			r.BodyRef = v.string()
		case fieldDecisionID:
			r.DecisionID = v.string()
		case fieldBodyRetention:
			r.BodyRetention = v.duration()
		case fieldWhole:
			return array(r.Whole[:], v.bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func decodeHeader(data []byte) (h reservation.Header, err error) {
	err = read(data, func(field protowire.Number, v value) error {
		switch field {
		case fieldHeaderName:
			h.Name = v.string()
		case fieldHeaderValue:
			h.Value = clone(v.bytes)
		}
		return nil
	})
	return h, err
}

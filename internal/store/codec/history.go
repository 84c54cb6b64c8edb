package codec

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idemd/idemd/internal/reservation"
)

// Field numbers of a history and of its entries. Never reused, never renumbered.
const (
	fieldEntry    = 1
	fieldEvidence = 2
	fieldDropped  = 3

	fieldEntryAt           = 1
	fieldEntryKind         = 2
	fieldEntryAttempt      = 3
	fieldEntryOwner        = 4
	fieldEntryFrom         = 5
	fieldEntryTo           = 6
	fieldEntryOutcome      = 7
	fieldEntryActor        = 8
	fieldEntryReason       = 9
	fieldEntryEvidence     = 10
	fieldEntryTokenDigest  = 11
	fieldEntryResultDigest = 12
)

// EncodeHistory is the stored form of a record's history and evidence; nil where
// there is none, as on the plain path.
func EncodeHistory(r *reservation.Record) []byte {
	if len(r.History) == 0 && len(r.Evidence) == 0 && r.HistoryDropped == 0 {
		return nil
	}
	w := newWriter(128)
	for i := range r.History {
		w.message(fieldEntry, encodeEntry(&r.History[i]))
	}
	for i := range r.Evidence {
		w.message(fieldEvidence, encodeEntry(&r.Evidence[i]))
	}
	w.int(fieldDropped, r.HistoryDropped)
	return w.buf
}

func encodeEntry(e *reservation.HistoryEntry) []byte {
	w := newWriter(96)
	w.int(fieldEntryAt, int64(e.At))
	w.uint(fieldEntryKind, uint64(e.Kind))
	w.int(fieldEntryAttempt, int64(e.Attempt))
	w.string(fieldEntryOwner, e.Owner)
	w.uint(fieldEntryFrom, uint64(e.From))
	w.uint(fieldEntryTo, uint64(e.To))
	w.uint(fieldEntryOutcome, uint64(e.Outcome))
	w.string(fieldEntryActor, e.Actor)
	w.string(fieldEntryReason, e.Reason)
	w.string(fieldEntryEvidence, e.Evidence)
	if e.TokenDigest != (reservation.ShortDigest{}) {
		w.bytes(fieldEntryTokenDigest, e.TokenDigest[:])
	}
	if e.ResultDigest != (reservation.ResultDigest{}) {
		w.bytes(fieldEntryResultDigest, e.ResultDigest[:])
	}
	return w.buf
}

// DecodeHistory reads what EncodeHistory wrote into the record.
func DecodeHistory(data []byte, r *reservation.Record) error {
	return read(data, func(field protowire.Number, v value) error {
		switch field {
		case fieldEntry:
			entry, err := decodeEntry(v.bytes)
			r.History = append(r.History, entry)
			return err
		case fieldEvidence:
			entry, err := decodeEntry(v.bytes)
			r.Evidence = append(r.Evidence, entry)
			return err
		case fieldDropped:
			r.HistoryDropped = v.int()
		}
		return nil
	})
}

func decodeEntry(data []byte) (e reservation.HistoryEntry, err error) {
	err = read(data, func(field protowire.Number, v value) (err error) {
		switch field {
		case fieldEntryAt:
			e.At = v.time()
		case fieldEntryKind:
			e.Kind = reservation.HistoryKind(v.number)
		case fieldEntryAttempt:
			e.Attempt = int32(v.int())
		case fieldEntryOwner:
			e.Owner = v.string()
		case fieldEntryFrom:
			e.From = reservation.State(v.number)
		case fieldEntryTo:
			e.To = reservation.State(v.number)
		case fieldEntryOutcome:
			e.Outcome = reservation.OutcomeKind(v.number)
		case fieldEntryActor:
			e.Actor = v.string()
		case fieldEntryReason:
			e.Reason = v.string()
		case fieldEntryEvidence:
			e.Evidence = v.string()
		case fieldEntryTokenDigest:
			err = array(e.TokenDigest[:], v.bytes)
		case fieldEntryResultDigest:
			err = array(e.ResultDigest[:], v.bytes)
		}
		return err
	})
	return e, err
}

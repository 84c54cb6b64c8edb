package codec

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idemd/idemd/internal/reservation"
)

// Field numbers of a record. Never reused, never renumbered.
const (
	fieldState              = 1
	fieldScheme             = 2
	fieldDigest             = 3
	fieldAttempt            = 4
	fieldAttemptsAllowed    = 5
	fieldFence              = 6
	fieldVersion            = 7
	fieldToken              = 8
	fieldSpent              = 9
	fieldOwner              = 10
	fieldOnLapse            = 11
	fieldPolicyVersion      = 12
	fieldTookOver           = 13
	fieldCheckpoint         = 14
	fieldCheckpointSequence = 15
	fieldRetention          = 16
	fieldReservedAt         = 17
	fieldLeaseExpiresAt     = 18
	fieldLeaseCapAt         = 19
	fieldFinishedAt         = 20
	fieldExpiresAt          = 21
	fieldRetryAt            = 22
	fieldUnknownSince       = 23
	fieldTold               = 24
	fieldJudged             = 25
	fieldResult             = 26
	fieldHistory            = 27
	fieldErasedAt           = 28
	fieldTrace              = 29
)

// EncodeRecord is the stored form of a record.
func EncodeRecord(r *reservation.Record) []byte {
	size := 192 + len(r.Checkpoint)
	if r.Result != nil {
		size += len(r.Result.Body)
	}
	w := newWriter(size)
	w.uint(fieldState, uint64(r.State))
	w.string(fieldScheme, r.Fingerprint.Scheme)
	w.bytes(fieldDigest, r.Fingerprint.Digest)
	w.int(fieldAttempt, int64(r.Attempt))
	w.int(fieldAttemptsAllowed, int64(r.AttemptsAllowed))
	w.int(fieldFence, r.Fence)
	w.int(fieldVersion, r.Version)
	w.bytes(fieldToken, r.Token[:])
	w.bytes(fieldSpent, EncodeSpent(r.Spent))
	w.string(fieldOwner, r.Owner)
	w.uint(fieldOnLapse, uint64(r.OnLapse))
	w.string(fieldPolicyVersion, r.PolicyVersion)
	w.bool(fieldTookOver, r.TookOver)
	w.bytes(fieldCheckpoint, r.Checkpoint)
	w.uint(fieldCheckpointSequence, r.CheckpointSequence)
	w.int(fieldRetention, r.Retention.Microseconds())
	w.int(fieldReservedAt, int64(r.ReservedAt))
	w.int(fieldLeaseExpiresAt, int64(r.LeaseExpiresAt))
	w.int(fieldLeaseCapAt, int64(r.LeaseCapAt))
	w.int(fieldFinishedAt, int64(r.FinishedAt))
	w.int(fieldExpiresAt, int64(r.ExpiresAt))
	w.int(fieldRetryAt, int64(r.RetryAt))
	w.int(fieldUnknownSince, int64(r.UnknownSince))
	w.uint(fieldTold, uint64(r.Told))
	w.bool(fieldJudged, r.Judged)
	if r.Result != nil {
		w.message(fieldResult, EncodeResult(r.Result))
	}
	if history := EncodeHistory(r); history != nil {
		w.message(fieldHistory, history)
	}
	w.int(fieldErasedAt, int64(r.ErasedAt))
	if r.Trace != (reservation.TraceContext{}) {
		w.bytes(fieldTrace, r.Trace[:])
	}
	return w.buf
}

// DecodeRecord reads what EncodeRecord wrote. The record shares no memory with data.
func DecodeRecord(data []byte) (*reservation.Record, error) {
	r := new(reservation.Record)
	err := read(data, func(field protowire.Number, v value) (err error) {
		switch field {
		case fieldState:
			r.State = reservation.State(v.number)
		case fieldScheme:
			r.Fingerprint.Scheme = v.string()
		case fieldDigest:
			r.Fingerprint.Digest = clone(v.bytes)
		case fieldAttempt:
			r.Attempt = int32(v.int())
		case fieldAttemptsAllowed:
			r.AttemptsAllowed = int32(v.int())
		case fieldFence:
			r.Fence = v.int()
		case fieldVersion:
			r.Version = v.int()
		case fieldToken:
			err = array(r.Token[:], v.bytes)
		case fieldSpent:
			r.Spent, err = DecodeSpent(v.bytes)
		case fieldOwner:
			r.Owner = v.string()
		case fieldOnLapse:
			r.OnLapse = reservation.LapsePolicy(v.number)
		case fieldPolicyVersion:
			r.PolicyVersion = v.string()
		case fieldTookOver:
			r.TookOver = protowire.DecodeBool(v.number)
		case fieldCheckpoint:
			r.Checkpoint = clone(v.bytes)
		case fieldCheckpointSequence:
			r.CheckpointSequence = v.number
		case fieldRetention:
			r.Retention = v.duration()
		case fieldReservedAt:
			r.ReservedAt = v.time()
		case fieldLeaseExpiresAt:
			r.LeaseExpiresAt = v.time()
		case fieldLeaseCapAt:
			r.LeaseCapAt = v.time()
		case fieldFinishedAt:
			r.FinishedAt = v.time()
		case fieldExpiresAt:
			r.ExpiresAt = v.time()
		case fieldRetryAt:
			r.RetryAt = v.time()
		case fieldUnknownSince:
			r.UnknownSince = v.time()
		case fieldTold:
			r.Told = reservation.OutcomeKind(v.number)
		case fieldJudged:
			r.Judged = protowire.DecodeBool(v.number)
		case fieldResult:
			r.Result, err = DecodeResult(v.bytes)
		case fieldHistory:
			err = DecodeHistory(v.bytes, r)
		case fieldErasedAt:
			r.ErasedAt = v.time()
		case fieldTrace:
			err = array(r.Trace[:], v.bytes)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if r.Attempt == 0 || r.State == reservation.Absent {
		return nil, errMalformed
	}
	return r, nil
}

// EncodeSpent joins the digests of spent tokens.
func EncodeSpent(spent []reservation.ShortDigest) []byte {
	if len(spent) == 0 {
		return nil
	}
	joined := make([]byte, 0, len(spent)*len(reservation.ShortDigest{}))
	for _, digest := range spent {
		joined = append(joined, digest[:]...)
	}
	return joined
}

// DecodeSpent parts what EncodeSpent joined.
func DecodeSpent(joined []byte) ([]reservation.ShortDigest, error) {
	const size = len(reservation.ShortDigest{})
	if len(joined)%size != 0 {
		return nil, errMalformed
	}
	var spent []reservation.ShortDigest
	for reader := bytes.NewBuffer(joined); reader.Len() > 0; {
		spent = append(spent, reservation.ShortDigest(reader.Next(size)))
	}
	return spent, nil
}

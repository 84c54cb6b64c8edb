package pgstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/codec"
)

// row is a reservation as it is read: columns that are not decoded yet.
type row struct {
	revision                                                         int64
	version, fence, retention                                        int64
	reservedAt, leaseExpiresAt, leaseCapAt                           int64
	checkpointSequence, finishedAt, expiresAt, retryAt, unknownSince int64
	attempt, attemptsAllowed                                         int32
	state, onLapse, told                                             int16
	tookOver, judged                                                 bool
	scheme                                                           string
	digest, token                                                    []byte
	owner, policyVersion                                             string
	spent, checkpoint, result, history, trace                        []byte
	erasedAt, bodyExpiresAt                                          int64
}

// targets are where a row is scanned to, in the order of recordColumns.
func (r *row) targets() []any {
	return []any{
		&r.revision, &r.version, &r.fence, &r.retention, &r.reservedAt, &r.leaseExpiresAt, &r.leaseCapAt,
		&r.checkpointSequence, &r.finishedAt, &r.expiresAt, &r.retryAt, &r.unknownSince,
		&r.attempt, &r.attemptsAllowed, &r.state, &r.onLapse, &r.told, &r.tookOver, &r.judged,
		&r.scheme, &r.digest, &r.token, &r.owner, &r.policyVersion,
		&r.spent, &r.checkpoint, &r.result, &r.history, &r.trace, &r.erasedAt, &r.bodyExpiresAt,
	}
}

var errImpossible = errors.New("a number is out of its range")

// decode makes the record of a row. What Check would call impossible is decoded all
// the same: it can be told apart and shown.
func (r *row) decode() (*reservation.Record, error) {
	rec := &reservation.Record{
		State:              reservation.State(r.state),
		Fingerprint:        reservation.Fingerprint{Scheme: r.scheme, Digest: r.digest},
		Attempt:            r.attempt,
		AttemptsAllowed:    r.attemptsAllowed,
		Fence:              r.fence,
		Version:            r.version,
		Owner:              r.owner,
		OnLapse:            reservation.LapsePolicy(r.onLapse),
		PolicyVersion:      r.policyVersion,
		TookOver:           r.tookOver,
		Checkpoint:         r.checkpoint,
		CheckpointSequence: uint64(r.checkpointSequence),
		Retention:          time.Duration(r.retention) * time.Microsecond,
		ReservedAt:         reservation.Time(r.reservedAt),
		LeaseExpiresAt:     reservation.Time(r.leaseExpiresAt),
		LeaseCapAt:         reservation.Time(r.leaseCapAt),
		FinishedAt:         reservation.Time(r.finishedAt),
		ExpiresAt:          reservation.Time(r.expiresAt),
		RetryAt:            reservation.Time(r.retryAt),
		UnknownSince:       reservation.Time(r.unknownSince),
		Told:               reservation.OutcomeKind(r.told),
		Judged:             r.judged,
	}
	if err := r.checkRanges(rec); err != nil {
		return nil, err
	}
	r.decodeLater(rec)
	return rec, r.decodeBytes(rec)
}

// decodeLater reads the columns of which an earlier version of the daemon knows nothing. It
// leaves them as they were when it writes the rest of the row: what belongs to an earlier
// life of the key, or to an earlier result, is passed over.
func (r *row) decodeLater(rec *reservation.Record) {
	if rec.State.Finished() && r.erasedAt >= r.finishedAt {
		rec.ErasedAt = reservation.Time(r.erasedAt)
	}
	if life, trace := binary.BigEndian.AppendUint64(nil, uint64(r.reservedAt)), r.trace; len(trace) == len(life)+len(rec.Trace) && bytes.HasPrefix(trace, life) {
		copy(rec.Trace[:], trace[len(life):])
	}
}

// encodeTrace is what decodeLater reads.
func encodeTrace(rec *reservation.Record) []byte {
	if rec.Trace == (reservation.TraceContext{}) {
		return nil
	}
	return append(binary.BigEndian.AppendUint64(nil, uint64(rec.ReservedAt)), rec.Trace[:]...)
}

// checkRanges refuses what the state machine has no branch for.
func (r *row) checkRanges(rec *reservation.Record) error {
	switch {
	case r.state < int16(reservation.Processing) || r.state > int16(reservation.Unknown),
		r.onLapse < int16(reservation.Hold) || r.onLapse > int16(reservation.Rerun),
		r.told < 0 || r.told > int16(reservation.ToldUnknown),
		r.attempt < 1 || r.revision < 1,
		rec.State.Finished() != (r.expiresAt != 0):
		return errImpossible
	}
	return nil
}

func (r *row) decodeBytes(rec *reservation.Record) (err error) {
	if len(r.token) != len(rec.Token) {
		return errors.New("the token's digest has another length")
	}
	copy(rec.Token[:], r.token)
	if rec.Spent, err = codec.DecodeSpent(r.spent); err != nil {
		return fmt.Errorf("spent tokens: %w", err)
	}
	if r.result != nil {
		if rec.Result, err = codec.DecodeResult(r.result); err != nil {
			return fmt.Errorf("result: %w", err)
		}
	}
	if r.history != nil {
		if err = codec.DecodeHistory(r.history, rec); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	return nil
}

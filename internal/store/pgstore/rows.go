package pgstore

import (
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/codec"
)

// rows are reservations as they are written: one array for each column, so that one
// statement with a fixed text writes any number of them.
type rows struct {
	tenant, namespace, key                                           []string
	revision, version, fence, retention                              []int64
	reservedAt, leaseExpiresAt, leaseCapAt                           []int64
	checkpointSequence, finishedAt, expiresAt, retryAt, unknownSince []int64
	attempt, attemptsAllowed                                         []int32
	state, onLapse, told                                             []int16
	tookOver, judged                                                 []bool
	scheme                                                           []string
	digest, token                                                    [][]byte
	owner, policyVersion                                             []string
	spent, checkpoint, result, history, trace                        [][]byte
	erasedAt, bodyExpiresAt                                          []int64
}

func (r *rows) len() int { return len(r.key) }

func (r *rows) add(address reservation.Address, revision int64, rec *reservation.Record) {
	r.tenant = append(r.tenant, address.Tenant)
	r.namespace = append(r.namespace, address.Namespace)
	r.key = append(r.key, address.Key)
	r.revision = append(r.revision, revision)
	r.version = append(r.version, rec.Version)
	r.fence = append(r.fence, rec.Fence)
	r.retention = append(r.retention, rec.Retention.Microseconds())
	r.reservedAt = append(r.reservedAt, int64(rec.ReservedAt))
	r.leaseExpiresAt = append(r.leaseExpiresAt, int64(rec.LeaseExpiresAt))
	r.leaseCapAt = append(r.leaseCapAt, int64(rec.LeaseCapAt))
	r.checkpointSequence = append(r.checkpointSequence, int64(rec.CheckpointSequence))
	r.finishedAt = append(r.finishedAt, int64(rec.FinishedAt))
	r.expiresAt = append(r.expiresAt, int64(rec.ExpiresAt))
	r.retryAt = append(r.retryAt, int64(rec.RetryAt))
	r.unknownSince = append(r.unknownSince, int64(rec.UnknownSince))
	r.attempt = append(r.attempt, rec.Attempt)
	r.attemptsAllowed = append(r.attemptsAllowed, rec.AttemptsAllowed)
	r.state = append(r.state, int16(rec.State))
	r.onLapse = append(r.onLapse, int16(rec.OnLapse))
	r.told = append(r.told, int16(rec.Told))
	r.tookOver = append(r.tookOver, rec.TookOver)
	r.judged = append(r.judged, rec.Judged)
	r.scheme = append(r.scheme, rec.Fingerprint.Scheme)
	r.digest = append(r.digest, rec.Fingerprint.Digest)
	r.token = append(r.token, rec.Token[:])
	r.owner = append(r.owner, rec.Owner)
	r.policyVersion = append(r.policyVersion, rec.PolicyVersion)
	r.spent = append(r.spent, codec.EncodeSpent(rec.Spent))
	r.checkpoint = append(r.checkpoint, orNull(rec.Checkpoint))
	r.result = append(r.result, encodeResult(rec.Result))
	r.history = append(r.history, codec.EncodeHistory(rec))
	r.trace = append(r.trace, encodeTrace(rec))
	r.erasedAt = append(r.erasedAt, int64(rec.ErasedAt))
	r.bodyExpiresAt = append(r.bodyExpiresAt, int64(rec.BodyExpiresAt()))
}

// arguments are the arrays in the order of keyColumns and recordColumns.
func (r *rows) arguments() []any {
	return []any{
		r.tenant, r.namespace, r.key,
		r.revision, r.version, r.fence, r.retention, r.reservedAt, r.leaseExpiresAt, r.leaseCapAt,
		r.checkpointSequence, r.finishedAt, r.expiresAt, r.retryAt, r.unknownSince,
		r.attempt, r.attemptsAllowed, r.state, r.onLapse, r.told, r.tookOver, r.judged,
		r.scheme, r.digest, r.token, r.owner, r.policyVersion,
		r.spent, r.checkpoint, r.result, r.history, r.trace, r.erasedAt, r.bodyExpiresAt,
	}
}

func encodeResult(result *reservation.Result) []byte {
	if result == nil {
		return nil
	}
	return codec.EncodeResult(result)
}

func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

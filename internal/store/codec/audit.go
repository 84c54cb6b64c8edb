package codec

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/idemd/idemd/internal/reservation"
)

// Field numbers of an audit entry. Never reused, never renumbered. Its id is not among
// them: it is its key.
const (
	fieldActAt           = 1
	fieldActActor        = 2
	fieldAct             = 3
	fieldActTenant       = 4
	fieldActNamespace    = 5
	fieldActKey          = 6
	fieldActFrom         = 7
	fieldActFromVersion  = 8
	fieldActTo           = 9
	fieldActToVersion    = 10
	fieldActVerdict      = 11
	fieldActReason       = 12
	fieldActEvidence     = 13
	fieldActResultDigest = 14
)

// EncodeAudit is the stored form of an audit entry.
func EncodeAudit(e *reservation.AuditEntry) []byte {
	w := newWriter(192)
	w.int(fieldActAt, int64(e.At))
	w.string(fieldActActor, e.Actor)
	w.uint(fieldAct, uint64(e.Act))
	w.string(fieldActTenant, e.Tenant)
	w.string(fieldActNamespace, e.Namespace)
	w.string(fieldActKey, e.Key)
	w.uint(fieldActFrom, uint64(e.Before.State))
	w.int(fieldActFromVersion, e.Before.Version)
	w.uint(fieldActTo, uint64(e.After.State))
	w.int(fieldActToVersion, e.After.Version)
	w.uint(fieldActVerdict, uint64(e.Verdict))
	w.string(fieldActReason, e.Reason)
	w.string(fieldActEvidence, e.Evidence)
	if e.ResultDigest != (reservation.ResultDigest{}) {
		w.bytes(fieldActResultDigest, e.ResultDigest[:])
	}
	return w.buf
}

// DecodeAudit reads what EncodeAudit wrote.
func DecodeAudit(id int64, data []byte) (*reservation.AuditEntry, error) {
	e := &reservation.AuditEntry{ID: id}
	err := read(data, func(field protowire.Number, v value) (err error) {
		switch field {
		case fieldActAt:
			e.At = v.time()
		case fieldActActor:
			e.Actor = v.string()
		case fieldAct:
			e.Act = reservation.Act(v.number)
		case fieldActTenant:
			e.Tenant = v.string()
		case fieldActNamespace:
			e.Namespace = v.string()
		case fieldActKey:
			e.Key = v.string()
		case fieldActFrom:
			e.Before.State = reservation.State(v.number)
		case fieldActFromVersion:
			e.Before.Version = v.int()
		case fieldActTo:
			e.After.State = reservation.State(v.number)
		case fieldActToVersion:
			e.After.Version = v.int()
		case fieldActVerdict:
			e.Verdict = reservation.Verdict(v.number)
		case fieldActReason:
			e.Reason = v.string()
		case fieldActEvidence:
			e.Evidence = v.string()
		case fieldActResultDigest:
			err = array(e.ResultDigest[:], v.bytes)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if e.Act == 0 || e.Tenant == "" {
		return nil, errMalformed
	}
	return e, nil
}

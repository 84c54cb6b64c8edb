package storetest

import (
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// acts are the acts of operators that are kept.
func (d Defect) acts(now reservation.Time, command reservation.Command, before, after *reservation.Record) []*reservation.AuditEntry {
	if d == ForgetsActs {
		return nil
	}
	if d == KeepsIdleActs && before != nil && before == after {
		again := *before
		after = &again
	}
	if act := reservation.Audited(now, command, before, after); act != nil {
		return []*reservation.AuditEntry{act}
	}
	return nil
}

// query is what a list goes by.
func (d Defect) query(query store.Query) store.Query {
	switch d {
	case ListMixesTenants:
		query.Tenant = ""
	case IgnoresFilters:
		query.State, query.Owner, query.ReservedAfter, query.ReservedBefore = reservation.Absent, "", 0, 0
	case IgnoresPrefixes:
		query.KeyPrefix = ""
	}
	return query
}

// listed is the record that a list shows.
func (d Defect) listed(now reservation.Time, rec *reservation.Record) *reservation.Record {
	if d == ListShowsExpired && rec.Expired(now) {
		shown := *rec
		shown.ExpiresAt = now + 1
		return &shown
	}
	return rec
}

// strips tells whether the sweeper takes the body out of a record's result.
func (d Defect) strips(now reservation.Time, rec *reservation.Record) bool {
	switch d {
	case StripsEarly:
		return rec.BodyExpiresAt() != 0
	case NeverStrips:
		return false
	}
	return rec.BodyExpired(now)
}

// stripped is the record that is left.
func (d Defect) stripped(rec *reservation.Record) *reservation.Record {
	less := rec.WithoutBody()
	if d == LosesWhole {
		less.Result = forgetful(less.Result)
	}
	return less
}

// forgetful is a result without the digest of what was told.
func forgetful(r *reservation.Result) *reservation.Result {
	if r == nil || r.Whole == (reservation.ResultDigest{}) {
		return r
	}
	less := *r
	less.Whole = reservation.ResultDigest{}
	return &less
}

package store

import (
	"slices"
	"strings"

	"github.com/idemd/idemd/internal/reservation"
)

// Query selects what List reads.
type Query struct {
	// Tenant, Namespace and KeyPrefix select; empty = all.
	Tenant, Namespace, KeyPrefix string
	// State is the state shown; reservation.Absent = all.
	State reservation.State
	// Owner is the owner of the latest attempt; empty = all.
	Owner string
	// ReservedAfter and ReservedBefore bound when the first attempt was granted: from
	// the one, up to, not including, the other; zero = no bound.
	ReservedAfter, ReservedBefore reservation.Time
	// After is where the page before ended; zero = from the start.
	After reservation.Address
	// Limit is the most entries listed: 1 to MaxBatch.
	Limit int
	// Examine is the most records looked at; zero = MaxExamined.
	Examine int
}

// MaxExamined bounds the records, and MaxExaminedBytes about how much of them, that are
// looked at for one page.
const (
	MaxExamined      = 10_000
	MaxExaminedBytes = 16 << 20
)

// Examined is the most records looked at.
func (q Query) Examined() int {
	if q.Examine == 0 {
		return MaxExamined
	}
	return q.Examine
}

// OpenOnly tells whether only what has not finished can be selected: there is an index
// of it.
func (q Query) OpenOnly() bool {
	return q.State == reservation.Processing || q.State == reservation.Unknown
}

// Plain tells whether all records of the addresses are selected that have not expired.
func (q Query) Plain() bool {
	return q.State == reservation.Absent && q.Owner == "" && q.ReservedAfter == 0 && q.ReservedBefore == 0
}

// Selects tells whether a record is selected that lies at an address of the query's, nil
// = it can't be decoded. Such a one is listed where all are: nobody knows what it is.
func (q Query) Selects(now reservation.Time, rec *reservation.Record) bool {
	if rec == nil {
		return q.Plain()
	}
	shown := rec.Shown(now)
	return shown != reservation.Absent && (q.State == reservation.Absent || q.State == shown) &&
		(q.Owner == "" || q.Owner == rec.Owner) &&
		(q.ReservedAfter == 0 || rec.ReservedAt >= q.ReservedAfter) &&
		(q.ReservedBefore == 0 || rec.ReservedAt < q.ReservedBefore)
}

// Holds tells whether an address is one of the query's.
func (q Query) Holds(a reservation.Address) bool {
	return (q.Tenant == "" || q.Tenant == a.Tenant) && (q.Namespace == "" || q.Namespace == a.Namespace) &&
		strings.HasPrefix(a.Key, q.KeyPrefix)
}

// Entry is a record with its address. Record is nil where it can't be decoded.
type Entry struct {
	Address reservation.Address
	Record  *reservation.Record
}

// Page is what List read.
type Page struct {
	Now     reservation.Time
	Entries []Entry
	// More: there may be others behind End. A page can be short, even empty, and there
	// be more: it has a bound on what is looked at.
	More bool
	End  reservation.Address
	// Examined and Bytes are how many records were looked at, and how large they were.
	Examined, Bytes int
}

// Add looks at the record at the next address, nil = it can't be decoded, of which size
// bytes were read, and tells whether the page goes on.
func (p *Page) Add(query Query, address reservation.Address, rec *reservation.Record, size int) bool {
	p.Examined++
	p.Bytes += size
	p.End = address
	if query.Holds(address) && query.Selects(p.Now, rec) {
		p.Entries = append(p.Entries, Entry{Address: address, Record: Summary(rec)})
	}
	p.More = len(p.Entries) >= query.Limit || p.Examined >= query.Examined() || p.Bytes >= MaxExaminedBytes
	return !p.More
}

// Summary is a record without what can be large.
func Summary(rec *reservation.Record) *reservation.Record {
	if rec == nil {
		return nil
	}
	less := *rec
	less.Result, less.Checkpoint, less.History, less.Evidence, less.HistoryDropped = nil, nil, nil, nil, 0
	return &less
}

// AuditQuery selects acts of operators.
type AuditQuery struct {
	// Tenants select; nil = all.
	Tenants []string
	// Namespace, Key and Actor select; empty = all.
	Namespace, Key, Actor string
	// After and Before bound when it was: from the one, up to, not including, the other;
	// zero = no bound.
	After, Before reservation.Time
	// Below is where the page before ended: only entries with smaller ids; zero = all.
	Below int64
	// Limit is the most entries read: 1 to MaxBatch. At most MaxExamined are looked at.
	Limit int
}

// Selects tells whether an entry is selected.
func (q AuditQuery) Selects(e *reservation.AuditEntry) bool {
	return (q.Tenants == nil || slices.Contains(q.Tenants, e.Tenant)) && (q.Namespace == "" || q.Namespace == e.Namespace) &&
		(q.Key == "" || q.Key == e.Key) && (q.Actor == "" || q.Actor == e.Actor) &&
		(q.After == 0 || e.At >= q.After) && (q.Before == 0 || e.At < q.Before) &&
		(q.Below == 0 || e.ID < q.Below)
}

// AuditPage is what Audit read, newest first.
type AuditPage struct {
	Entries []reservation.AuditEntry
	// Next is what the query for the next page is Below; zero = there is none.
	Next int64
}

// Add looks at the next entry, of the examined-th, and tells whether the page goes on.
func (p *AuditPage) Add(query AuditQuery, examined int, e *reservation.AuditEntry) bool {
	if query.Selects(e) {
		p.Entries = append(p.Entries, *e)
	}
	if more := len(p.Entries) < query.Limit && examined < MaxExamined; more {
		return true
	}
	if e.ID > 1 {
		p.Next = e.ID
	}
	return false
}

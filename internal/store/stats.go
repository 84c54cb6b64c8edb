package store

import "github.com/idemd/idemd/internal/reservation"

// MaxScopes is of how many namespaces Stats tells the counts apart: what they are called fits
// in an answer of 4 MiB.
const MaxScopes = 5_000

// Scope names a namespace of a tenant.
type Scope struct{ Tenant, Namespace string }

// ScopeOf is the namespace that an address lies in.
func ScopeOf(a reservation.Address) Scope { return Scope{a.Tenant, a.Namespace} }

// Counts count what has not finished: leased; silent past its lease and safe to take over;
// unresolved.
type Counts struct {
	Live, Lapsed, Unknown int64
	// OldestUnresolved is since when the oldest unresolved record is so, and OldestKey
	// is its key, the first of several; zero = there is none.
	OldestUnresolved reservation.Time
	OldestKey        string
}

// Stats are counts by the store's clock.
type Stats struct {
	Now reservation.Time
	// Counts are those of all namespaces together. OldestScope is where OldestKey lies.
	Counts
	OldestScope Scope
	// Scopes are those of each namespace in which something has not finished. Of more
	// than MaxScopes, the others, in the order of their names, are left out and Cut is
	// set; they are counted in Counts.
	Scopes map[Scope]Counts
	Cut    bool
	// Finished estimates the finished records. Expired ones count until they are swept.
	Finished int64
}

// Count counts one stored record. They come in the order of their addresses.
func (s *Stats) Count(address reservation.Address, rec *reservation.Record) {
	if rec.State.Finished() {
		s.Finished++
		return
	}
	scope := ScopeOf(address)
	if s.Counts.count(s.Now, address.Key, rec) {
		s.OldestScope = scope
	}
	counts, known := s.Scopes[scope]
	if !known && len(s.Scopes) >= MaxScopes {
		s.Cut = true
		return
	}
	if s.Scopes == nil {
		s.Scopes = make(map[Scope]Counts)
	}
	counts.count(s.Now, address.Key, rec)
	s.Scopes[scope] = counts
}

// count counts one open record and tells whether it is the oldest unresolved one.
func (c *Counts) count(now reservation.Time, key string, rec *reservation.Record) (oldest bool) {
	switch since := rec.UnresolvedSince(now); {
	case since != 0:
		c.Unknown++
		if oldest = c.OldestUnresolved == 0 || since < c.OldestUnresolved; oldest {
			c.OldestUnresolved, c.OldestKey = since, key
		}
	case rec.Lapsed(now):
		c.Lapsed++
	default:
		c.Live++
	}
	return oldest
}

package storetest

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// MemStore is the reference: a map, a mutex and Decide. It keeps nothing beyond
// Close and is for tests only. A Defect breaks it on purpose.
type MemStore struct {
	defect Defect

	mu      sync.Mutex
	now     reservation.Time
	records map[reservation.Address]*reservation.Record
	acts    []reservation.AuditEntry
	held    map[reservation.Address]chan struct{}
}

// OpenMem opens a MemStore.
func OpenMem(testing.TB) *Harness { return openDefective(None) }

func openDefective(defect Defect) *Harness {
	s := &MemStore{
		defect:  defect,
		now:     Start,
		records: make(map[reservation.Address]*reservation.Record),
		held:    make(map[reservation.Address]chan struct{}),
	}
	return &Harness{Store: s, SetClock: s.setClock, Hold: s.hold}
}

func (s *MemStore) setClock(now reservation.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

func (s *MemStore) hold(address reservation.Address) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held[address] = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, address)
		close(held)
	}
}

// Apply implements store.Store.
func (s *MemStore) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]reservation.Outcome, len(commands))
	for _, group := range store.Groups(commands) {
		if ctx.Err() != nil && s.defect != IgnoresContext {
			group.Answer(store.Unavailable(), outcomes)
			continue
		}
		s.applyGroup(group, commands, outcomes)
	}
	return outcomes
}

func (s *MemStore) applyGroup(group store.Group, commands []reservation.Command, outcomes []reservation.Outcome) {
	now := s.now
	for held := s.held[group.Address]; held != nil; held = s.held[group.Address] {
		if !s.defect.waitsForRivals() {
			group.Answer(store.Busy(), outcomes)
			return
		}
		s.mu.Unlock()
		<-held
		s.mu.Lock()
	}
	if s.defect != ClockBeforeLock {
		now = s.now
	}
	address := s.defect.address(group.Address)
	group = s.defect.group(group, outcomes)
	rec := s.defect.before(now, s.records[address])
	if s.defect == ReadsBeforeLock {
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	next, acts := s.defect.fold(now, group, rec, commands, outcomes)
	if next != nil && next != rec {
		s.records[address] = next
	}
	for _, act := range acts {
		act.ID = int64(len(s.acts)) + 1
		s.acts = append(s.acts, *act)
	}
}

// Get implements store.Store.
func (s *MemStore) Get(_ context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := store.Snapshot{Now: s.now}
	for i, w := range wanted {
		found := store.Found{Index: i, Record: s.records[s.defect.address(w.Address)]}
		if found.Record != nil {
			found.Seen.Version = found.Record.Version
		}
		if !s.defect.hides(w.Seen, found.Seen) {
			snapshot.Found = append(snapshot.Found, found)
		}
	}
	return snapshot, nil
}

// List implements store.Store.
func (s *MemStore) List(_ context.Context, query store.Query) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := store.Page{Now: s.now}
	asked := s.defect.query(query)
	skipped := s.defect != SkipsAtPages || query.After == (reservation.Address{})
	for _, entry := range s.sorted() {
		// As a range of an index would.
		if entry.Address.Compare(query.After) <= 0 || !asked.Holds(entry.Address) || asked.OpenOnly() && entry.Record.State.Finished() {
			continue
		}
		if !skipped {
			skipped = true
			continue
		}
		if !page.Add(asked, entry.Address, s.defect.listed(s.now, entry.Record), 0) {
			break
		}
	}
	for i := range page.Entries {
		if s.defect == ListsResults {
			page.Entries[i].Record = s.records[page.Entries[i].Address]
		}
	}
	return page, nil
}

// sorted are all records in the order of their addresses.
func (s *MemStore) sorted() []store.Entry {
	entries := make([]store.Entry, 0, len(s.records))
	for address, rec := range s.records {
		entries = append(entries, store.Entry{Address: address, Record: rec})
	}
	slices.SortFunc(entries, func(a, b store.Entry) int { return a.Address.Compare(b.Address) })
	return entries
}

// Audit implements store.Store.
func (s *MemStore) Audit(_ context.Context, query store.AuditQuery) (store.AuditPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var page store.AuditPage
	if s.defect == AuditMixesTenants {
		query.Tenants = nil
	}
	for i, act := range slices.Backward(s.acts) {
		if query.Below == 0 || act.ID < query.Below {
			if !page.Add(query, len(s.acts)-i, &act) {
				break
			}
		}
	}
	return page, nil
}

// Sweep implements store.Store.
func (s *MemStore) Sweep(_ context.Context, limit int) (store.Swept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var expired []store.Entry
	for address, rec := range s.records {
		if s.defect.sweeps(s.now, rec) {
			expired = append(expired, store.Entry{Address: address, Record: rec})
		}
	}
	slices.SortFunc(expired, func(a, b store.Entry) int { return int(a.Record.ExpiresAt - b.Record.ExpiresAt) })
	swept := store.Swept{Deleted: min(limit, len(expired))}
	for _, entry := range expired[:swept.Deleted] {
		delete(s.records, entry.Address)
	}
	if left := expired[swept.Deleted:]; len(left) > 0 {
		swept.More, swept.Lag = true, s.now.Sub(left[0].Record.ExpiresAt)
	}
	s.strip(limit, &swept)
	return swept, nil
}

// strip is the sweep of bodies.
func (s *MemStore) strip(limit int, swept *store.Swept) {
	var expired []store.Entry
	for address, rec := range s.records {
		if s.defect.strips(s.now, rec) {
			expired = append(expired, store.Entry{Address: address, Record: rec})
		}
	}
	slices.SortFunc(expired, func(a, b store.Entry) int { return int(a.Record.BodyExpiresAt() - b.Record.BodyExpiresAt()) })
	swept.Stripped = min(limit, len(expired))
	for _, entry := range expired[:swept.Stripped] {
		s.records[entry.Address] = s.defect.stripped(entry.Record)
	}
	if left := expired[swept.Stripped:]; len(left) > 0 {
		swept.More, swept.Lag = true, max(swept.Lag, s.now.Sub(left[0].Record.BodyExpiresAt()))
	}
}

// Stats implements store.Store.
func (s *MemStore) Stats(context.Context) (store.Stats, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := store.Stats{Now: s.now}
	for _, entry := range s.sorted() {
		if s.defect == MixesScopes {
			entry.Address.Namespace = "all"
		}
		stats.Count(entry.Address, entry.Record)
	}
	return stats, nil
}

// Check implements store.Store.
func (s *MemStore) Check(context.Context) (store.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var report store.Report
	for address, rec := range s.records {
		report.Records++
		if err := rec.Check(); err != nil {
			report.Add(address, err.Error())
		}
	}
	return report, nil
}

// Ping implements store.Store.
func (s *MemStore) Ping(context.Context) error { return nil }

// Close implements store.Store.
func (s *MemStore) Close() error { return nil }

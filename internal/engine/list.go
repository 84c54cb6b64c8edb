package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Listing asks for a page of records.
type Listing struct {
	// Tenants are those that may be seen; nil = all.
	Tenants []string
	// Filter selects: Tenant, Namespace, KeyPrefix, Owner, and From and To for the first
	// grant.
	Filter reservation.Filter
	// State is the state shown; reservation.Absent = all.
	State     reservation.State
	PageSize  int // 0 = DefaultPageSize; more than MaxPageSize is taken for it
	PageToken string
}

// Listed is a page of records, without what can be large.
type Listed struct {
	Now           reservation.Time
	Entries       []store.Entry
	NextPageToken string // empty = there is no next page
}

// List reads a page of records in the order of their addresses. What it looks at is
// bounded: a page may be short, even empty, and have a next one. Errors: those of the
// filter, ENUM_INVALID, PAGE_INVALID, STORE_UNAVAILABLE, or ctx's.
func (e *Engine) List(ctx context.Context, l Listing) (Listed, error) {
	if err := l.validate(); err != nil {
		return Listed{}, err
	}
	size, refusal := pageSize(l.PageSize)
	if refusal != nil {
		return Listed{}, refusal
	}
	query := l.describe()
	end, refusal := pageEnd(query, l.PageToken)
	if refusal != nil {
		return Listed{}, refusal
	}
	after, refusal := addressOf(end)
	if refusal != nil {
		return Listed{}, refusal
	}
	if err := e.desk.sit(ctx); err != nil {
		return Listed{}, err
	}
	defer e.desk.rise()
	reader := &listReader{store: e.desk.store, listing: l, size: size}
	if err := reader.run(ctx, after); err != nil {
		return Listed{}, err
	}
	if reader.more {
		reader.listed.NextPageToken = pageToken(query, addressText(reader.end))
	}
	return reader.listed, nil
}

func (l Listing) validate() error {
	if l.State > reservation.Unknown {
		return reservation.Errorf(reservation.EnumInvalid, "state", "state must be one of those that Lookup shows")
	}
	if err := l.Filter.Validate(); err != nil {
		return err
	}
	return nil
}

func (l Listing) describe() string {
	return describeQuery("reservations", l.tenants(), l.Filter, l.State)
}

// tenants are those whose records are read, in order; nil = all.
func (l Listing) tenants() []string { return visible(l.Tenants, l.Filter.Tenant) }

// visible are the tenants that are asked for and may be seen, in order; nil = all.
func visible(tenants []string, asked string) []string {
	switch {
	case asked != "" && sees(tenants, asked):
		return []string{asked}
	case asked != "":
		return []string{}
	case tenants == nil:
		return nil
	}
	// Never nil, however few they are: that would be all.
	return slices.Compact(append([]string{}, slices.Sorted(slices.Values(tenants))...))
}

func sees(tenants []string, tenant string) bool {
	return tenants == nil || slices.Contains(tenants, tenant)
}

func sortScopes(all []ScopeStats) {
	slices.SortFunc(all, func(a, b ScopeStats) int {
		return cmp.Or(cmp.Compare(a.Scope.Tenant, b.Scope.Tenant), cmp.Compare(a.Scope.Namespace, b.Scope.Namespace))
	})
}

// listReader reads one page, tenant by tenant where not all may be seen.
type listReader struct {
	store   store.Store
	listing Listing
	size    int

	listed          Listed
	examined, bytes int
	more            bool
	end             reservation.Address
}

// tenantCost is what a look at a tenant counts for, beside the records looked at.
const tenantCost = 20

func (r *listReader) run(ctx context.Context, after reservation.Address) error {
	tenants := r.listing.tenants()
	if tenants == nil {
		return r.read(ctx, "", after)
	}
	for _, tenant := range tenants {
		switch {
		case tenant < after.Tenant:
			continue
		case r.full():
			r.more, r.end = true, reservation.Address{Tenant: tenant} // before all of its records
			return nil
		}
		if err := r.read(ctx, tenant, after); err != nil || r.more {
			return err
		}
		r.examined += tenantCost
	}
	return nil
}

func (r *listReader) full() bool {
	return len(r.listed.Entries) >= r.size || r.examined >= store.MaxExamined || r.bytes >= store.MaxExaminedBytes
}

func (r *listReader) read(ctx context.Context, tenant string, after reservation.Address) error {
	f := r.listing.Filter
	page, err := r.store.List(ctx, store.Query{
		Tenant: tenant, Namespace: f.Namespace, KeyPrefix: f.KeyPrefix, State: r.listing.State, Owner: f.Owner,
		ReservedAfter: f.From, ReservedBefore: f.To,
		After: after, Limit: r.size - len(r.listed.Entries), Examine: store.MaxExamined - r.examined,
	})
	if err != nil {
		return err
	}
	r.listed.Now = page.Now
	r.listed.Entries = append(r.listed.Entries, page.Entries...)
	r.examined += page.Examined
	r.bytes += page.Bytes
	r.more, r.end = page.More, page.End
	return nil
}

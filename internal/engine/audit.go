package engine

import (
	"context"
	"strconv"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// AuditListing asks for a page of the acts of operators.
type AuditListing struct {
	// Tenants are those that may be seen; nil = all.
	Tenants []string
	// Filter selects: Tenant, Namespace, Key, Actor, and From and To for the time.
	Filter    reservation.Filter
	PageSize  int // 0 = DefaultPageSize; more than MaxPageSize is taken for it
	PageToken string
}

// AuditListed is a page of acts, newest first.
type AuditListed struct {
	Entries       []reservation.AuditEntry
	NextPageToken string // empty = there is no next page
}

// Audit reads a page of the acts of operators. What it looks at is bounded: a page may be
// short, even empty, and have a next one. Errors: those of the filter, PAGE_INVALID,
// STORE_UNAVAILABLE, or ctx's.
func (e *Engine) Audit(ctx context.Context, l AuditListing) (AuditListed, error) {
	if err := l.Filter.Validate(); err != nil {
		return AuditListed{}, err
	}
	size, refusal := pageSize(l.PageSize)
	if refusal != nil {
		return AuditListed{}, refusal
	}
	tenants := visible(l.Tenants, l.Filter.Tenant)
	query := describeQuery("audit", tenants, l.Filter)
	end, refusal := pageEnd(query, l.PageToken)
	if refusal != nil {
		return AuditListed{}, refusal
	}
	below, _ := strconv.ParseInt(end, 10, 64) // empty = from the newest
	if err := e.desk.sit(ctx); err != nil {
		return AuditListed{}, err
	}
	defer e.desk.rise()
	f := l.Filter
	page, err := e.desk.store.Audit(ctx, store.AuditQuery{
		Tenants: tenants, Namespace: f.Namespace, Key: f.Key, Actor: f.Actor, After: f.From, Before: f.To, Below: below, Limit: size,
	})
	if err != nil {
		return AuditListed{}, err
	}
	listed := AuditListed{Entries: page.Entries}
	if page.Next != 0 {
		listed.NextPageToken = pageToken(query, strconv.FormatInt(page.Next, 10))
	}
	return listed, nil
}

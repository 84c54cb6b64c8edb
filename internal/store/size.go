package store

import (
	"context"

	"github.com/idemd/idemd/internal/reservation"
)

// Sizer is what a store is that can tell what records take.
type Sizer interface {
	// Size adds up what records of a tenant, or of one of its namespaces, take: at most limit
	// (1 to MaxBatch) of them, from the first behind an address on, expired ones too until
	// they are swept. Error: STORE_UNAVAILABLE.
	Size(ctx context.Context, scope Scope, after reservation.Address, limit int) (Size, error)
}

// Size is what some records take, in bytes, as they are stored and without indexes.
type Size struct {
	Bytes int64
	// Last is the last of them; More: there may be others behind it.
	Last reservation.Address
	More bool
}

package idem

import (
	"context"
	"time"
)

// Grant is the right to execute one attempt of an operation. One that no Do has made will
// do for a test of the function: it stores no checkpoints.
type Grant struct {
	Tenant, Namespace, Key string
	// Attempt is 1, 2, ...
	Attempt int32
	// Fence grows with every attempt: tables and calls that check it refuse a smaller
	// one than they have seen.
	Fence int64
	// ReservedAt is when the first attempt was granted. With the address it names this
	// operation for good: a key that was forgotten and is used again has a later one.
	ReservedAt time.Time
	// Takeover: the attempt before lapsed, and may have left something half done.
	Takeover bool
	// LastCheckpoint is the progress of earlier attempts; empty if there is none.
	LastCheckpoint []byte
	// PolicyVersion is the one that the first attempt pinned: go by it.
	PolicyVersion string
	// LastFailure is what the last failed attempt told; nil if none did.
	LastFailure *Result

	keeper *keeper
}

type grantKey struct{}

// GrantFrom is the grant under which ctx's work runs: [Client.Do] puts it into the context
// of its function, and so do the guards of handlers. Of a Do within a Do it is the inner
// one's. False: the work runs unguarded.
func GrantFrom(ctx context.Context) (*Grant, bool) {
	g, _ := ctx.Value(grantKey{}).(*Grant)
	return g, g != nil
}

// WithGrant is ctx as work under the grant has it, for tests of handlers. Nil: as work has
// it that runs unguarded, for who starts some within another's.
func WithGrant(ctx context.Context, g *Grant) context.Context {
	if _, is := GrantFrom(ctx); g == nil && !is {
		return ctx
	}
	return context.WithValue(ctx, grantKey{}, g)
}

// Checkpoint stores progress for the next attempt to go on from: at most
// MaxCheckpointBytes; empty clears it. It renews the lease. It is repeated while the
// daemon is unavailable, until ctx ends.
func (g *Grant) Checkpoint(ctx context.Context, data []byte) error {
	if g.keeper == nil {
		return nil
	}
	if err := g.keeper.checkpoint(ctx, data); err != nil {
		return err
	}
	return nil
}

// DeriveKey makes an idempotency key for a call that the operation itself makes
// downstream, named by the label: a UUID, the same on every attempt, made of tenant,
// namespace, key and label only. No namespace is the daemon's "default", by either name
// the same.
func (g *Grant) DeriveKey(label string) string {
	return deriveKey(Address{g.Tenant, g.Namespace, g.Key}, label)
}

func deriveKey(a Address, label string) string {
	if a.Namespace == "" {
		a.Namespace = "default"
	}
	return DeriveKey(a.Tenant, a.Namespace, a.Key, label)
}

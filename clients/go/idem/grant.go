package idem

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
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

// SetDecisionID names what was done by its business id: that of a charge, an order. It is
// stored with the result, also where the answer itself is too large to be kept, and with
// an error, an unknown outcome or a panic. At most 128 bytes; one that can't be kept is
// left out, of which Hooks.Reduced is told. Of several the last one counts, and a Result
// that has one of its own goes before. What it is set to is lost with the process.
func (g *Grant) SetDecisionID(id string) {
	if g.keeper != nil {
		g.keeper.mu.Lock()
		defer g.keeper.mu.Unlock()
		g.keeper.decisionID = id
	}
}

// withDecisionID is a result with the id that the function has set, if it has not its own.
func (k *keeper) withDecisionID(result *Result) *Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.decisionID == "" || result.GetDecisionId() != "" {
		return result
	}
	result = proto.CloneOf(orEmpty(result)) // the function's own may be anybody's
	result.DecisionId = k.decisionID
	return result
}

// DeriveKey makes an idempotency key for a call that the operation itself makes
// downstream, named by the label: a UUID, the same on every attempt, made of tenant,
// namespace, key and label only. No namespace is the daemon's "default", by either name
// the same.
func (g *Grant) DeriveKey(label string) string {
	return deriveKey(Address{g.Tenant, g.Namespace, g.Key}, label)
}

func deriveKey(a Address, label string) string {
	return DeriveKey(a.Tenant, orDefault(a.Namespace), a.Key, label)
}

// orDefault is a namespace by the name under which the daemon knows it.
func orDefault(namespace string) string {
	if namespace == "" {
		return "default"
	}
	return namespace
}

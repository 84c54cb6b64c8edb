package idemgrpc

import (
	"context"

	"github.com/idemd/idemd/clients/go/idem"
)

type grantKey struct{}

// GrantFrom is the right under which a guarded handler runs: attempt, fence, DeriveKey,
// Checkpoint. False where the handler runs unguarded.
func GrantFrom(ctx context.Context) (*idem.Grant, bool) {
	g, is := ctx.Value(grantKey{}).(*idem.Grant)
	return g, is
}

func withGrant(ctx context.Context, g *idem.Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

package guard

import (
	"context"
	"slices"

	"google.golang.org/grpc/metadata"
)

// metadataKey is where a gRPC call has its key.
const metadataKey = "idempotency-key"

type incomingKey struct{}

// WithIncoming remembers the keys that a call came with, for who makes other calls in its
// handler: they name no other operation.
func WithIncoming(ctx context.Context, keys ...string) context.Context {
	if len(keys) == 0 {
		return ctx
	}
	around, _ := ctx.Value(incomingKey{}).([]string)
	return context.WithValue(ctx, incomingKey{}, append(slices.Clone(around), keys...))
}

// WithoutIncoming are the keys that don't name the calls in whose handlers ctx is, of
// whatever kind they are, in quotes or not.
func WithoutIncoming(ctx context.Context, keys []string) []string {
	noted, _ := ctx.Value(incomingKey{}).([]string)
	incoming := slices.Concat(noted, metadata.ValueFromIncomingContext(ctx, metadataKey))
	if len(keys) == 0 || len(incoming) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(incoming, func(other string) bool { return same(key, other) })
	})
}

// same: one key, in quotes or not.
func same(a, b string) bool {
	x, errX := bare(a)
	y, errY := bare(b)
	return a == b || errX == nil && errY == nil && x == y
}

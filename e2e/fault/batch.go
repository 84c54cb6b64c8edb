package fault

import (
	"context"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	service     = "/idemd.v1.IdempotencyService/"
	batchMethod = service + "Batch"
)

// methodsOf are those of the calls that a message holds: the commands of a batch, or the
// call itself.
func methodsOf(method string, request []byte) (methods []string) {
	if method != batchMethod {
		return []string{method}
	}
	kinds := []string{"", "Reserve", "Extend", "Complete", "Fail", "Lookup"} // by number in BatchCommand
	for len(request) > 0 {
		_, wireType, n := protowire.ConsumeTag(request)
		if n < 0 || wireType != protowire.BytesType {
			return []string{method}
		}
		command, m := protowire.ConsumeBytes(request[n:])
		if m < 0 {
			return []string{method}
		}
		request = request[n+m:]
		if kind, _, n := protowire.ConsumeTag(command); n >= 0 && int(kind) < len(kinds) {
			methods = append(methods, service+kinds[kind])
		}
	}
	return methods
}

// forEach has a fault decide on a message for each kind of call in it: what happens to one
// command of a batch happens to all.
func forEach(methods []string, f Fault) func(ctx context.Context, forward Forward) ([]byte, error) {
	kinds := slices.Compact(slices.Sorted(slices.Values(methods)))
	return func(ctx context.Context, forward Forward) ([]byte, error) {
		for _, kind := range kinds {
			inner := forward
			forward = func(ctx context.Context) ([]byte, error) { return f(ctx, kind, inner) }
		}
		return forward(ctx)
	}
}

package grpcserver

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// callLog logs calls: method, code, duration, who, where and refusal of each; never tokens
// or bodies, and keys only as it is told. The middleware of that name gathers its fields
// before it asks whether anybody wants them, which took a twentieth of the daemon's time.
type callLog struct {
	logger *slog.Logger
	gate   *gate
	// key is how a key is shown; empty = not at all.
	key func(key string) string
}

func (l *callLog) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	response, err := handle(ctx, request)
	code := status.Code(err)
	if level := levelOf(code); l.logger.Enabled(ctx, level) {
		fields := callFields(ctx, info.FullMethod, code, time.Since(began), err)
		fields = append(fields, l.who(ctx, info.FullMethod)...)
		l.logger.LogAttrs(ctx, level, "call", append(fields, l.where(request)...)...)
	}
	return response, err
}

func callFields(ctx context.Context, method string, code codes.Code, took time.Duration, err error) []slog.Attr {
	fields := []slog.Attr{
		slog.String("method", method), slog.String("code", code.String()), slog.Float64("ms", took.Seconds()*1000),
	}
	if from, ok := peer.FromContext(ctx); ok {
		fields = append(fields, slog.String("peer", from.Addr.String()))
	}
	if id := requestID(ctx); id != "" {
		fields = append(fields, slog.String("request_id", id))
	}
	if err != nil {
		fields = append(fields, slog.String("error", status.Convert(err).Message()))
	}
	return fields
}

// who is found out a second time, for the few calls that are logged, rather than kept for
// all of them.
func (l *callLog) who(ctx context.Context, method string) []slog.Attr {
	if l.gate.identify == nil || isOpen(method) {
		return nil
	}
	identity, refusal := l.gate.identity(ctx)
	if refusal != nil {
		return nil
	}
	return []slog.Attr{slog.String("identity", identity.Name)}
}

// where is what a call is about, if its names are ones.
func (l *callLog) where(request any) []slog.Attr {
	if batch, is := request.(interface {
		GetCommands() []*idemdv1.BatchCommand
	}); is {
		return []slog.Attr{slog.Int("commands", len(batch.GetCommands()))}
	}
	about, is := request.(addressed)
	if !is {
		return nil
	}
	address := addressOf(about)
	if address.Validate() != nil {
		return nil
	}
	fields := []slog.Attr{slog.String("tenant", address.Tenant), slog.String("namespace", address.Namespace)}
	if shown := l.key(address.Key); shown != "" {
		fields = append(fields, slog.String("key", shown))
	}
	return fields
}

// maxRequestID bounds the callers' name of a request.
const maxRequestID = 128

// requestID is the callers' own name of a request, from the metadata x-request-id. One that
// is long or odd is none: what is logged is no place for it.
func requestID(ctx context.Context) string {
	given := metadata.ValueFromIncomingContext(ctx, "x-request-id")
	if len(given) != 1 || len(given[0]) > maxRequestID {
		return ""
	}
	for _, c := range []byte(given[0]) {
		if c <= ' ' || c > '~' {
			return ""
		}
	}
	return given[0]
}

// levelOf logs what is a fault of the daemon itself. Callers' own mistakes, the plain
// path and refusals while the store is away are for debugging: an outage is logged
// once, where it is noticed, and counted in the metrics, not once for every call.
func levelOf(code codes.Code) slog.Level {
	if code == codes.Internal || code == codes.Unknown || code == codes.DataLoss {
		return slog.LevelError
	}
	return slog.LevelDebug
}

func recoverTo(logger *slog.Logger) recovery.RecoveryHandlerFuncContext {
	return func(ctx context.Context, panicked any) error {
		logger.ErrorContext(ctx, "a handler panicked", "panic", panicked, "stack", string(debug.Stack()))
		return status.Error(codes.Internal, "internal error")
	}
}

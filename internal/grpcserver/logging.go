package grpcserver

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// logCalls logs method, code, duration, peer and refusal of each call: never keys,
// tokens or bodies. The middleware of that name gathers its fields before it asks
// whether anybody wants them, which took a twentieth of the daemon's time.
func logCalls(logger *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now()
		response, err := handle(ctx, request)
		code := status.Code(err)
		if level := levelOf(code); logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, "call", callFields(ctx, info.FullMethod, code, time.Since(began), err)...)
		}
		return response, err
	}
}

func callFields(ctx context.Context, method string, code codes.Code, took time.Duration, err error) []slog.Attr {
	fields := []slog.Attr{
		slog.String("method", method), slog.String("code", code.String()), slog.Float64("ms", took.Seconds()*1000),
	}
	if from, ok := peer.FromContext(ctx); ok {
		fields = append(fields, slog.String("peer", from.Addr.String()))
	}
	if err != nil {
		fields = append(fields, slog.String("error", status.Convert(err).Message()))
	}
	return fields
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

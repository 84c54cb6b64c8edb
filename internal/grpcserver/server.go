package grpcserver

import (
	"context"
	"log/slog"
	"runtime/debug"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
)

// MaxMessageBytes bounds a gRPC message, both ways. It leaves room for the largest
// record there can be.
const MaxMessageBytes = 8 << 20

// What the daemon allows idle clients, and how it finds dead ones itself. Clients may
// ping every 10 s, also without calls under way: a client library's defaults must
// not be slower than this.
const (
	minClientPing = 10 * time.Second
	serverPing    = 30 * time.Second
	pingTimeout   = 10 * time.Second
)

// Options are what a server is made of.
type Options struct {
	Engine  *engine.Engine
	Health  *health.Server
	Metrics *grpcprom.ServerMetrics
	Logger  *slog.Logger
	// Extra are further options, after the server's own.
	Extra []grpc.ServerOption
}

// New makes a server with all services registered.
func New(o Options) *grpc.Server {
	server := grpc.NewServer(o.ServerOptions()...)
	idemdv1.RegisterIdempotencyServiceServer(server, &idempotency{engine: o.Engine})
	idemdv1.RegisterOperatorServiceServer(server, &operator{engine: o.Engine})
	healthgrpc.RegisterHealthServer(server, o.Health)
	reflection.Register(server)
	o.Metrics.InitializeMetrics(server)
	return server
}

// ServerOptions are limits, keepalive and interceptors. The benchmark's server that does
// nothing has the same ones.
func (o Options) ServerOptions() []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPing, Timeout: pingTimeout}),
		// Recovery stands innermost, so that a panic is measured and logged as the
		// INTERNAL error that the caller sees.
		grpc.ChainUnaryInterceptor(
			o.Metrics.UnaryServerInterceptor(),
			logging.UnaryServerInterceptor(logTo(o.Logger),
				logging.WithLogOnEvents(logging.FinishCall), logging.WithLevels(levelOf)),
			recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(recoverTo(o.Logger))),
		),
	}
	return append(options, o.Extra...)
}

// ServiceNames are the services whose health is told.
func ServiceNames() []string {
	return []string{idemdv1.IdempotencyService_ServiceDesc.ServiceName, idemdv1.OperatorService_ServiceDesc.ServiceName}
}

// logTo logs method, code, duration and peer: never keys, tokens or bodies.
func logTo(logger *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		logger.Log(ctx, slog.Level(level), msg, fields...)
	})
}

// levelOf logs what is a fault of the daemon itself. Callers' own mistakes, the plain
// path and refusals while the store is away are for debugging: an outage is logged
// once, where it is noticed, and counted in the metrics, not once for every call.
func levelOf(code codes.Code) logging.Level {
	if code == codes.Internal || code == codes.Unknown || code == codes.DataLoss {
		return logging.LevelError
	}
	return logging.LevelDebug
}

func recoverTo(logger *slog.Logger) recovery.RecoveryHandlerFuncContext {
	return func(ctx context.Context, panicked any) error {
		logger.ErrorContext(ctx, "a handler panicked", "panic", panicked, "stack", string(debug.Stack()))
		return status.Error(codes.Internal, "internal error")
	}
}

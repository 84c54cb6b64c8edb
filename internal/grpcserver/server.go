package grpcserver

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// MaxMessageBytes bounds a gRPC message, both ways. It leaves room for the largest
// record there can be.
const MaxMessageBytes = 8 << 20

// What the daemon allows idle clients, and how it finds dead ones itself. Clients may
// ping every 10 s, also without calls under way. Half of that is enforced: a client
// that pings every 10 s by its own clock is now and then a little early by ours.
const (
	minClientPing = 5 * time.Second
	serverPing    = 30 * time.Second
	pingTimeout   = 10 * time.Second

	// A connection is asked to be made anew after this time, more or less a tenth, so that
	// callers find daemons that were added. What is under way on it goes on, and so do the longest waits.
	connectionAge   = 5 * time.Minute
	connectionGrace = time.Minute
)

// Options are what a server is made of.
type Options struct {
	Engine  *engine.Engine
	Health  *health.Server
	Metrics *grpcprom.ServerMetrics
	Logger  *slog.Logger
	// Identify tells who calls; nil = nobody is asked.
	Identify Identify
	// Traces makes a span of each call; nil = none.
	Traces trace.TracerProvider
	// LogKey is how a key is shown in the log of a call; empty = not at all. Nil = never.
	LogKey func(key string) string
	// Refused is told why a call, or a command of a batch, was refused before the engine
	// saw it. Nil = nobody is.
	Refused func(reservation.Reason)
	// TLS serves with it; nil = in the clear.
	TLS *tls.Config
	// ConnectionAge is after what time clients are asked to connect anew. Zero = 5 min.
	ConnectionAge time.Duration
}

// New makes a server with all services registered.
func New(o Options) *grpc.Server {
	server := grpc.NewServer(o.ServerOptions()...)
	idemdv1.RegisterIdempotencyServiceServer(server, &idempotency{engine: o.Engine, refused: o.refused()})
	idemdv1.RegisterOperatorServiceServer(server, &operator{engine: o.Engine})
	healthgrpc.RegisterHealthServer(server, o.Health)
	reflection.Register(server)
	o.Metrics.InitializeMetrics(server)
	return server
}

// ServerOptions are limits, keepalive and interceptors. The benchmark's server that does
// nothing has the same ones.
func (o Options) ServerOptions() []grpc.ServerOption {
	gate := newGate(o.Identify, o.refused())
	calls := &callLog{logger: o.Logger, gate: gate, key: o.LogKey}
	if calls.key == nil {
		calls.key = func(string) string { return "" }
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: serverPing, Timeout: pingTimeout,
			MaxConnectionAge: cmp.Or(o.ConnectionAge, connectionAge), MaxConnectionAgeGrace: connectionGrace,
		}),
		// Only the gate stands within recovery, so that a panic is measured and
		// logged as the INTERNAL error that the caller sees.
		grpc.ChainUnaryInterceptor(
			o.Metrics.UnaryServerInterceptor(),
			calls.unary,
			recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(recoverTo(o.Logger))),
			gate.unary,
		),
		grpc.ChainStreamInterceptor(gate.stream),
	}
	if o.Traces != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(o.Traces), otelgrpc.WithMeterProvider(noop.NewMeterProvider()),
			otelgrpc.WithPropagators(propagation.TraceContext{}), otelgrpc.WithFilter(isTraced),
		)))
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	return options
}

func (o Options) refused() func(reservation.Reason) {
	if o.Refused == nil {
		return func(reservation.Reason) {}
	}
	return o.Refused
}

// isTraced leaves out probes.
func isTraced(info *stats.RPCTagInfo) bool { return !isOpen(info.FullMethodName) }

// ServiceNames are the services whose health is told.
func ServiceNames() []string {
	return []string{idemdv1.IdempotencyService_ServiceDesc.ServiceName, idemdv1.OperatorService_ServiceDesc.ServiceName}
}

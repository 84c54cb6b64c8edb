package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"runtime/pprof"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/daemon"
	"github.com/idemd/idemd/internal/grpcserver"
)

// How a child is told what to be.
const (
	roleVariable    = "IDEMD_BENCH_ROLE" // a contender
	dirVariable     = "IDEMD_BENCH_DIR"
	configVariable  = "IDEMD_BENCH_CONFIG"
	dsnVariable     = "IDEMD_BENCH_DSN"
	profileVariable = "IDEMD_BENCH_PROFILE"
)

// serve is a child: it serves until its standard input ends, and says on standard
// output where.
func serve(role string) error {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	finish, err := startProfile(os.Getenv(profileVariable))
	if err != nil {
		return err
	}
	defer finish()
	// As the daemon itself logs.
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	announce := func(address, http string) { fmt.Println(address, http) }
	if role == natsRole {
		return serveNATS(ctx)
	}
	if role == echo {
		calmGC()
		return serveEcho(ctx, logger, announce)
	}
	// The rest is as idemd has it by default.
	told := func(c *config.Config) {
		c.Listen.GRPC, c.Listen.HTTP = "127.0.0.1:0", "127.0.0.1:0"
		c.Store.DataDir, c.Store.Postgres = os.Getenv(dirVariable), os.Getenv(dsnVariable)
	}
	return daemon.Run(ctx, daemon.Config{Source: config.Source{File: os.Getenv(configVariable), Override: told}, Logger: logger, Started: announce})
}

func startProfile(path string) (finish func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

// calmGC collects garbage as seldom as the daemon does: echo must not be slower than it
// has to.
func calmGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// echoServer answers what a first Reserve and a first Complete are answered, and does
// nothing.
type echoServer struct {
	idemdv1.UnimplementedIdempotencyServiceServer
}

func serveEcho(ctx context.Context, logger *slog.Logger, announce func(address, _ string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	metrics := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram())
	server := grpc.NewServer(grpcserver.Options{Metrics: metrics, Logger: logger}.ServerOptions()...)
	idemdv1.RegisterIdempotencyServiceServer(server, echoServer{})
	metrics.InitializeMetrics(server)
	context.AfterFunc(ctx, server.Stop)
	announce(listener.Addr().String(), "")
	return server.Serve(listener)
}

// Reserve implements idemdv1.IdempotencyServiceServer.
func (echoServer) Reserve(_ context.Context, r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	now := timestamppb.Now()
	return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: &idemdv1.Owned{
		Attempt: 1, Fence: now.AsTime().UnixMicro(), LeaseExpiresAt: now, LeaseRemaining: durationpb.New(lease),
		PolicyVersion: r.GetPolicyVersion(),
	}}}, nil
}

// Complete implements idemdv1.IdempotencyServiceServer.
func (echoServer) Complete(context.Context, *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error) {
	now := timestamppb.Now()
	return &idemdv1.CompleteResponse{Version: now.AsTime().UnixMicro(), ExpiresAt: now}, nil
}

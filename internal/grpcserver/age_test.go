package grpcserver

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/store/storetest"
)

// Callers must come to daemons that were added, and must not notice: nor does a call that is
// held when its connection gets old.
func TestConnectionsAreMadeAnewAndNoCallIsLostByThat(t *testing.T) {
	e, err := engine.New(engine.Options{Store: storetest.OpenMem(t).Store})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	server := New(Options{
		Engine: e, Health: health.NewServer(), Metrics: grpcprom.NewServerMetrics(), Logger: slog.New(slog.DiscardHandler),
		ConnectionAge: 50 * time.Millisecond,
	})
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	var connections atomic.Int32
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			connections.Add(1)
			return listener.DialContext(ctx)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := idemdv1.NewIdempotencyServiceClient(conn)
	reserve := &idemdv1.ReserveRequest{
		Tenant: "acme", Key: "k", OwnerToken: make([]byte, 16), Fingerprint: &idemdv1.Fingerprint{Scheme: "s", Digest: make([]byte, 32)},
	}
	if _, err := client.Reserve(t.Context(), reserve); err != nil {
		t.Fatal(err)
	}
	held := make(chan error, 1)
	go func() {
		_, err := client.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "k", Wait: durationpb.New(30 * time.Second)})
		held <- err
	}()
	for connections.Load() < 4 {
		if _, err := client.Reserve(t.Context(), reserve); err != nil {
			t.Fatalf("a call while connections get old: %v", err)
		}
	}
	select {
	case err := <-held:
		t.Fatalf("the held call ended: %v", err)
	default:
	}
	if _, err := client.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: "k", OwnerToken: reserve.OwnerToken}); err != nil {
		t.Fatal(err)
	}
	if err := <-held; err != nil {
		t.Errorf("the held call, on a connection that is old: %v", err)
	}
}

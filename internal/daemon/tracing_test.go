package daemon

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/idemd/idemd/internal/config"
)

// collecting is a collector that keeps what it is sent.
type collecting struct {
	collector.UnimplementedTraceServiceServer
	names, tokens chan string
}

func (c *collecting) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.tokens <- strings.Join(metadata.ValueFromIncomingContext(ctx, "x-token"), ",")
	c.names <- r.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName()
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestSpansReachTheCollectorWithItsHeaders(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, c := grpc.NewServer(), &collecting{names: make(chan string, 1), tokens: make(chan string, 1)}
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	traces, err := newTraces(t.Context(), config.Tracing{
		Endpoint: listener.Addr().String(), Insecure: true, SamplePermille: 1000, HeadersFile: secretFile(t, "X-Token: abc\n\n"),
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := traces.Tracer("test").Start(t.Context(), "a call")
	span.End()
	flush(traces)
	if name, token := <-c.names, <-c.tokens; name != "a call" || token != "abc" {
		t.Errorf("the collector got %q with the token %q", name, token)
	}
}

func TestHeadersThatAreNoneAreRefusedWithoutBeingTold(t *testing.T) {
	for _, file := range []string{secretFile(t, "secret-without-a-name"), secretFile(t, ": secret"), "/nonexistent/file"} {
		if _, err := tracingHeaders(file); err == nil || strings.Contains(err.Error(), "secret-without") {
			t.Errorf("the answer is %v", err)
		}
	}
}

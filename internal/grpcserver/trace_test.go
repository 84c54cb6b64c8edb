package grpcserver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/store/storetest"
)

// tracedServer is one whose spans are at hand.
func tracedServer(t *testing.T, sampler sdktrace.Sampler) (*grpc.ClientConn, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	e, err := engine.New(engine.Options{Store: storetest.OpenMem(t).Store})
	if err != nil {
		t.Fatal(err)
	}
	server := New(Options{
		Engine: e, Health: health.NewServer(), Metrics: grpcprom.NewServerMetrics(), Logger: slog.New(slog.DiscardHandler),
		Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler)),
	})
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.GracefulStop() // spans end after their answers
		e.Close()
	})
	return conn, spans
}

// ended waits for the spans of calls: a span ends when its answer is out.
func ended(t *testing.T, spans *tracetest.SpanRecorder, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		if all := spans.Ended(); len(all) >= n {
			return all
		}
	}
	t.Fatalf("%d spans have ended, want %d", len(spans.Ended()), n)
	return nil
}

func said(span sdktrace.ReadOnlySpan) map[string]string {
	all := make(map[string]string)
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	parent       = "00-" + callersTrace + "-b7ad6b7169203331-01"
)

func TestAReplaysSpanIsLinkedToTheFirstAttempts(t *testing.T) {
	conn, spans := tracedServer(t, sdktrace.ParentBased(sdktrace.AlwaysSample()))
	c := idemdv1.NewIdempotencyServiceClient(conn)
	first := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	if _, err := c.Reserve(first, reserveRequest("k", 1)); err != nil {
		t.Fatal(err)
	}
	granted := ended(t, spans, 1)[0]
	if granted.SpanContext().TraceID().String() != callersTrace {
		t.Errorf("the call is traced as %s, its caller's is %s", granted.SpanContext().TraceID(), callersTrace)
	}
	if got := said(granted); got["idemd.decision"] != "OWNED" || got["idemd.attempt"] != "1" || got["idemd.tenant"] != "acme" || got["idemd.namespace"] != "default" {
		t.Errorf("its span says %v", got)
	}
	request := reserveRequest("k", 1)
	_, err := c.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: "k", OwnerToken: request.GetOwnerToken(), Result: &idemdv1.Result{Body: []byte("done")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reserve(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	replayed := ended(t, spans, 3)[2]
	if said(replayed)["idemd.decision"] != "REPLAY" {
		t.Errorf("the replay's span says %v", said(replayed))
	}
	if links := replayed.Links(); len(links) != 1 || links[0].SpanContext.TraceID() != granted.SpanContext().TraceID() ||
		links[0].SpanContext.SpanID() != granted.SpanContext().SpanID() {
		t.Errorf("the replay's links are %v", links)
	}
	if replayed.SpanContext().TraceID() == granted.SpanContext().TraceID() {
		t.Error("a retry that is no part of the first attempt's trace is shown as one")
	}
}

func TestABatchIsOneSpanWithABoundedNumberOfLinks(t *testing.T) {
	conn, spans := tracedServer(t, sdktrace.AlwaysSample())
	c := idemdv1.NewIdempotencyServiceClient(conn)
	var reserves, completes []*idemdv1.BatchCommand
	for i := range maxLinks + 8 {
		r := reserveRequest(fmt.Sprint("k", i), 1)
		reserves = append(reserves, &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Reserve{Reserve: r}})
		completes = append(completes, &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Complete{Complete: &idemdv1.CompleteRequest{
			Tenant: "acme", Key: r.GetKey(), OwnerToken: r.GetOwnerToken(), Result: &idemdv1.Result{Body: []byte("done")},
		}}})
	}
	for _, commands := range [][]*idemdv1.BatchCommand{reserves, completes, reserves} {
		if _, err := c.Batch(t.Context(), &idemdv1.BatchRequest{Commands: commands}); err != nil {
			t.Fatal(err)
		}
	}
	if all := ended(t, spans, 3); len(all) != 3 || len(all[2].Links()) != maxLinks {
		t.Errorf("there are %d spans, the last with %d links", len(all), len(all[2].Links()))
	}
}

func TestSpansHoldNoKeysTokensOrBodies(t *testing.T) {
	conn, spans := tracedServer(t, sdktrace.AlwaysSample())
	c := idemdv1.NewIdempotencyServiceClient(conn)
	request := reserveRequest("KEY-SECRET", 1)
	request.OwnerToken = []byte("TOKEN-SECRET-0123456789")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer SECRET")
	_, _ = c.Reserve(ctx, request)
	_, _ = c.Complete(ctx, &idemdv1.CompleteRequest{Tenant: "acme", Key: "KEY-SECRET", OwnerToken: []byte("OTHER-SECRET-0123456789"), Result: &idemdv1.Result{Body: []byte("SECRET")}})
	_, _ = c.Reserve(ctx, &idemdv1.ReserveRequest{Tenant: "SECRET is no tenant", Key: "k"})
	_, _ = healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
	all := ended(t, spans, 3)
	if len(all) != 3 {
		t.Errorf("there are %d spans; probes have none", len(all))
	}
	for _, span := range all {
		if text := fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status()); strings.Contains(text, "SECRET") {
			t.Errorf("a span says %s", text)
		}
	}
	if got := said(all[1])["idemd.decision"]; got != "STALE_TOKEN" {
		t.Errorf("the stranger's span says %q", got)
	}
}

func TestWhatNoSamplerTookIsNotKept(t *testing.T) {
	unsampled := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}})
	if kept := traceOf(trace.ContextWithSpanContext(t.Context(), unsampled)); kept != (traceOf(t.Context())) {
		t.Errorf("%v is kept", kept)
	}
}

func TestWithoutTracesACallAllocatesNothingForThem(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		traceOf(ctx)
		traced(ctx, nil, nil, nil)
		tracedBatch(ctx, nil)
	}); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

package e2e

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// gatewayMux is what docs/guards.md shows: a test holds one against the other.
func gatewayMux() *runtime.ServeMux {
	return runtime.NewServeMux(runtime.WithIncomingHeaderMatcher(func(name string) (string, bool) {
		if strings.EqualFold(name, "Idempotency-Key") {
			return idemgrpc.KeyHeader, true
		}
		return runtime.DefaultHeaderMatcher(name)
	}))
}

func TestWhatThePageShowsOfAGatewayIsWhatIsTested(t *testing.T) {
	page, err := os.ReadFile("../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("gateway_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n### Behind grpc-gateway\n")
	_, snippet, _ := strings.Cut(section, "```go\n")
	snippet, _, found := strings.Cut(snippet, "```")
	plain := func(text string) string { return regexp.MustCompile(`\s+`).ReplaceAllString(text, " ") }
	if !found || len(snippet) < 100 || !strings.Contains(plain(string(source)), plain(strings.TrimSpace(snippet))) {
		t.Errorf("the page shows\n%s", snippet)
	}
}

// gateway serves the orders of a replica by HTTP, as generated code does.
func gateway(t *testing.T, mux *runtime.ServeMux, orders *replica) string {
	t.Helper()
	api := testpb.NewTestServiceClient(harness.Dial(t, orders.addr))
	err := mux.HandlePath(http.MethodPost, "/orders", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		_, marshaler := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), mux, r, orderMethod)
		if err != nil {
			runtime.HTTPError(r.Context(), mux, marshaler, w, r, err)
			return
		}
		var md runtime.ServerMetadata
		response, err := api.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, marshaler, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, marshaler, w, r, response)
	})
	if err != nil {
		t.Fatal(err)
	}
	return serveHTTP(t, mux)
}

// The same header, sent to a guarded HTTP handler and, through a gateway, to a guarded
// gRPC handler.
func TestAKeyIsTheSameByHTTPAndThroughAGateway(t *testing.T) {
	daemon := house.Serve(t, house.Embedded(t)).GRPC
	orders := serveOrders(t, func(context.Context) (*testpb.SimpleResponse, error) { return &testpb.SimpleResponse{}, nil },
		grpc.ChainUnaryInterceptor(guardOrders(t, daemon, idemgrpc.Guard{Namespace: "by-gateway"}, idem.Options{})))
	guard := guardHTTP(t, daemon, idemhttp.Config{Namespace: "by-http"}, idem.Options{})
	urls := map[string]string{
		"by-http":    serveHTTP(t, guard.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))),
		"by-gateway": gateway(t, gatewayMux(), orders),
	}
	client := newClient(t, daemon, idem.Options{})
	for sent, want := range map[string]string{
		`k-1`: `k-1`, `"k-2"`: `k-2`, `a\b`: `a\b`, `"c\\d"`: `c\d`, `"e\f"`: ``, `"g`: ``, `"h"i`: ``, `"j";p=1`: ``, `"k", "l"`: ``, `"\""`: ``,
	} {
		for namespace, url := range urls {
			got := post(harness.Bounded(t), t, url, sent, "order")
			if want == "" {
				if got.status != http.StatusBadRequest || !strings.Contains(got.body, string(idemhttp.ReasonKeyInvalid)) {
					t.Errorf("%s %s: answered %d %s", namespace, sent, got.status, got.body)
				}
				continue
			}
			_, err := client.Lookup(harness.Bounded(t), &idemdv1.LookupRequest{Tenant: "acme", Namespace: namespace, Key: want})
			if got.status != http.StatusOK || err != nil {
				t.Errorf("%s %s: answered %d %s; the key %q: %v", namespace, sent, got.status, got.body, want, err)
			}
		}
	}
	if got := post(harness.Bounded(t), t, gateway(t, runtime.NewServeMux(), orders), "k-9", "order"); !strings.Contains(got.body, string(idemgrpc.ReasonKeyRequired)) {
		t.Errorf("the default mux: answered %d %s", got.status, got.body)
	}
	_, err := client.Lookup(harness.Bounded(t), &idemdv1.LookupRequest{Tenant: "acme", Namespace: "by-gateway", Key: "k-9"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("the default mux has stored something: %v", err)
	}
}

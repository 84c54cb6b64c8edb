package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/e2e/harness"
)

// backend is a service behind guards of both transports, in a namespace of its own, that
// tells under which key its effect ran.
type backend struct {
	grpc testpb.TestServiceClient // its connection makes keys
	url  string
	http *http.Client // makes keys, too
	ran  atomic.Int32
}

func newBackend(t *testing.T, daemon string) *backend {
	t.Helper()
	b := &backend{http: &http.Client{Transport: &idemhttp.Transport{}}}
	key := func(ctx context.Context) string {
		b.ran.Add(1)
		g, _ := idem.GrantFrom(ctx)
		return g.Key
	}
	orders := serveOrders(t, func(ctx context.Context) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Username: key(ctx)}, nil
	}, grpc.ChainUnaryInterceptor(guardOrders(t, daemon, idemgrpc.Guard{Namespace: "backend-grpc"}, idem.Options{})))
	keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{orderMethod}})
	if err != nil {
		t.Fatal(err)
	}
	b.grpc = testpb.NewTestServiceClient(harness.Dial(t, orders.addr, grpc.WithChainUnaryInterceptor(keys)))
	guard := guardHTTP(t, daemon, idemhttp.Config{Namespace: "backend-http"}, idem.Options{})
	b.url = serveHTTP(t, guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, key(r.Context()))
	})))
	return b
}

// byGRPC calls it with metadata that a handler may have copied from anywhere.
func (b *backend) byGRPC(ctx context.Context, t *testing.T, copied ...string) string {
	t.Helper()
	for _, key := range copied {
		ctx = metadata.AppendToOutgoingContext(ctx, idemgrpc.KeyHeader, key)
	}
	response, err := b.grpc.UnaryCall(ctx, &testpb.SimpleRequest{})
	if err != nil {
		t.Error(err)
	}
	return response.GetUsername()
}

// byHTTP calls it with headers that a handler may have copied from anywhere.
func (b *backend) byHTTP(ctx context.Context, t *testing.T, copied ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, strings.NewReader("charge"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range copied {
		r.Header.Add(idemhttp.KeyHeader, key)
	}
	response, err := b.http.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	var key string
	_, _ = fmt.Fscan(response.Body, &key)
	return key
}

// nested is what a guarded handler does at its backend.
type nested func(ctx context.Context, attempt int32)

// twice runs it as a handler of either transport that fails at first, under the key "k".
func (n nested) twice(t *testing.T, daemon string) {
	t.Helper()
	orders := serveOrders(t, func(ctx context.Context) (*testpb.SimpleResponse, error) {
		g, _ := idem.GrantFrom(ctx)
		if n(ctx, g.Attempt); g.Attempt == 1 {
			return nil, idem.NotExecuted(context.DeadlineExceeded)
		}
		return &testpb.SimpleResponse{}, nil
	}, grpc.ChainUnaryInterceptor(guardOrders(t, daemon, idemgrpc.Guard{Namespace: "front-grpc"}, idem.Options{})))
	url := serveHTTP(t, guardHTTP(t, daemon, idemhttp.Config{Namespace: "front-http"}, idem.Options{}).Middleware(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g, _ := idem.GrantFrom(r.Context())
			if n(r.Context(), g.Attempt); g.Attempt == 1 {
				idemhttp.NotExecuted(r)
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})))
	for range 2 {
		_ = orders.order(withKey(harness.Bounded(t), "k"), t)
		_ = post(harness.Bounded(t), t, url, `"k"`, "order")
	}
}

func TestADerivedKeyIsTheSameOnEveryAttemptBehindEitherGuardAndForEitherTransport(t *testing.T) {
	daemon := house.Serve(t, house.Embedded(t)).GRPC
	b := newBackend(t, daemon)
	attempts := map[int32]int{}
	nested(func(ctx context.Context, attempt int32) {
		attempts[attempt]++
		g, _ := idem.GrantFrom(ctx)
		if got, want := b.byGRPC(idemgrpc.WithDerivedKey(ctx, "charge"), t), g.DeriveKey("charge"); got != want {
			t.Errorf("by gRPC, attempt %d: the key is %q, want %q", attempt, got, want)
		}
		if got, want := b.byHTTP(idemhttp.WithDerivedKey(ctx, "mail"), t), g.DeriveKey("mail"); got != want {
			t.Errorf("by HTTP, attempt %d: the key is %q, want %q", attempt, got, want)
		}
	}).twice(t, daemon)
	if attempts[1] != 2 || attempts[2] != 2 {
		t.Errorf("attempts: %v", attempts)
	}
	if n := b.ran.Load(); n != 4 { // two calls of two fronts, not of four attempts
		t.Errorf("the backend ran %d times", n)
	}
}

// Many servers copy what came in into what goes out, also from one transport to the other.
func TestAnIncomingKeyOfEitherTransportNeverLeaksIntoANestedCallOfEither(t *testing.T) {
	daemon := house.Serve(t, house.Embedded(t)).GRPC
	b := newBackend(t, daemon)
	nested(func(ctx context.Context, _ int32) {
		for _, copied := range []string{"k", `"k"`} {
			if key := b.byGRPC(ctx, t, copied); key == "k" || key == "" {
				t.Errorf("by gRPC, copied %s: the key is %q", copied, key)
			}
			if key := b.byHTTP(ctx, t, copied); key == "k" || key == "" {
				t.Errorf("by HTTP, copied %s: the key is %q", copied, key)
			}
		}
		// What is said by name counts.
		if key := b.byGRPC(idemgrpc.WithKey(ctx, "k"), t); key != "k" {
			t.Errorf("by gRPC, with the key: it is %q", key)
		}
	}).twice(t, daemon)
}

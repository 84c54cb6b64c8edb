package idemgrpc_test

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// wire is a service that notes the keys that arrive, and may refuse a few calls first.
type wire struct {
	testpb.UnimplementedTestServiceServer
	mu     sync.Mutex
	keys   [][]string
	refuse int
}

func (w *wire) note(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, metadata.ValueFromIncomingContext(ctx, idemgrpc.KeyHeader))
	if w.refuse > 0 {
		w.refuse--
		return status.Error(codes.Unavailable, "try again")
	}
	return nil
}

func (w *wire) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return receipt(), w.note(ctx)
}

func (w *wire) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, w.note(ctx)
}

// arrived are the keys since the last time; each call has at most one.
func (w *wire) arrived(t *testing.T) (all []string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, keys := range w.keys {
		switch len(keys) {
		case 0:
			all = append(all, "")
		case 1:
			all = append(all, keys[0])
		default:
			t.Errorf("%d keys arrived with one call", len(keys))
		}
	}
	w.keys = nil
	return all
}

// gRPC itself repeats what is UNAVAILABLE.
const retries = `{"methodConfig": [{"name": [{"service": "grpc.testing.TestService"}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// caller is a client of the wire whose UnaryCall carries keys.
func caller(t *testing.T, w *wire, more ...grpc.UnaryClientInterceptor) testpb.TestServiceClient {
	t.Helper()
	keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{unary}})
	if err != nil {
		t.Fatal(err)
	}
	listener := listen(t, func(server *grpc.Server) { testpb.RegisterTestServiceServer(server, w) })
	conn := dial(t, listener, grpc.WithDefaultServiceConfig(retries),
		grpc.WithChainUnaryInterceptor(append([]grpc.UnaryClientInterceptor{keys}, more...)...))
	return testpb.NewTestServiceClient(conn)
}

func TestOneCallHasOneKeyThroughAllItsRetriesAndAnotherCallAnother(t *testing.T) {
	w := &wire{}
	twice := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		_ = invoke(ctx, method, request, reply, conn, o...)
		return invoke(ctx, method, request, reply, conn, o...)
	}
	api := caller(t, w, twice)
	ctx := guardtest.Bounded(t)
	w.refuse = 3
	for range 2 {
		if _, err := api.UnaryCall(ctx, order(1)); err != nil {
			t.Fatal(err)
		}
	}
	got := w.arrived(t) // 4 tries and a copy; a try and a copy
	if len(got) != 7 || got[0] == "" || got[5] == "" || got[0] == got[5] {
		t.Fatalf("arrived %q", got)
	}
	for i, key := range got {
		if want := got[i/5*5]; key != want {
			t.Errorf("try %d carries %q, want %q", i, key, want)
		}
		if _, has := idem.KeyTime(key); !has {
			t.Errorf("%q has no time in it", key)
		}
	}
}

func TestAKeyOfTheCallersOwnStays(t *testing.T) {
	w := &wire{}
	api := caller(t, w)
	for want, ctx := range map[string]context.Context{
		"in-metadata": keyed(guardtest.Bounded(t), "in-metadata"),
		"with-key":    idemgrpc.WithKey(guardtest.Bounded(t), "with-key"),
		"the-last":    idemgrpc.WithKey(keyed(guardtest.Bounded(t), "the-first"), "the-last"),
	} {
		if _, err := api.UnaryCall(ctx, order(1)); err != nil {
			t.Fatal(err)
		}
		if got := w.arrived(t); len(got) != 1 || got[0] != want {
			t.Errorf("arrived %q, want %q", got, want)
		}
	}
}

func TestOnlyChosenMethodsGetAKey(t *testing.T) {
	w := &wire{}
	if _, err := caller(t, w).EmptyCall(guardtest.Bounded(t), &testpb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if got := w.arrived(t); got[0] != "" {
		t.Errorf("arrived %q", got)
	}
	for _, name := range []string{"UnaryCall", "/grpc.testing.TestService/Nothing", streams} {
		if _, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{name}}); err == nil {
			t.Errorf("built with %s", name)
		}
	}
}

// Many servers copy what came in into what goes out.
func TestAnIncomingKeyNeverLeaksIntoANestedCall(t *testing.T) {
	w := &wire{}
	api := caller(t, w)
	incoming := metadata.Pairs(idemgrpc.KeyHeader, "of-the-caller", "trace", "1")
	ctx := metadata.NewIncomingContext(guardtest.Bounded(t), incoming)
	copied := metadata.NewOutgoingContext(ctx, incoming.Copy())
	if _, err := api.UnaryCall(copied, order(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := api.EmptyCall(copied, &testpb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if got := w.arrived(t); got[0] == "of-the-caller" || got[0] == "" || got[1] != "" {
		t.Errorf("arrived %q", got)
	}
	// What the caller says by name counts, also where it is the very same.
	for _, ctx := range []context.Context{
		idemgrpc.WithKey(copied, "of-the-caller"),
		metadata.NewOutgoingContext(idemgrpc.WithKey(ctx, "of-the-caller"), incoming.Copy()),
		metadata.NewOutgoingContext(idemgrpc.WithKey(ctx, "of-the-caller"), metadata.MD{}),
	} {
		if _, err := api.UnaryCall(ctx, order(1)); err != nil {
			t.Fatal(err)
		}
		if got := w.arrived(t); got[0] != "of-the-caller" {
			t.Errorf("arrived %q", got)
		}
	}
}

func TestANestedCallGetsTheSameDerivedKeyOnEveryAttempt(t *testing.T) {
	w := &wire{}
	bank := caller(t, w)
	s := open(t, guarding(idemgrpc.Guard{Need: idemgrpc.Optional}), idem.Options{})
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		_, err := bank.UnaryCall(idemgrpc.WithDerivedKey(ctx, "charge"), order(1))
		return receipt(), idem.NotExecuted(err)
	}
	w.refuse = 4 // the first attempt, with all its tries
	if a := s.call(t, "k", order(1)); status.Code(a.err) != codes.Unavailable {
		t.Fatalf("answered %v", a.err)
	}
	if a := s.call(t, "k", order(1)); a.err != nil {
		t.Fatal(a.err)
	}
	want := idem.DeriveKey("acme", "default", "k", "charge")
	got := w.arrived(t)
	for _, key := range got {
		if key != want {
			t.Errorf("arrived %q, want %q", key, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d tries arrived", len(got))
	}
	// Without a guard there is nothing to derive it from.
	if a := s.callIn(guardtest.Bounded(t), order(1)); a.err != nil {
		t.Fatal(a.err)
	}
	if got := w.arrived(t); len(got) != 1 || got[0] == want || got[0] == "" {
		t.Errorf("unguarded: arrived %q", got)
	}
}

// A loop that goes by KeepKey must come to an end at a card that was declined.
func TestARefusalThatIsRecordedIsTheLastWordAndAnyOtherIsNot(t *testing.T) {
	for name, c := range map[string]struct {
		guard  idemgrpc.Guard
		handle func(context.Context) error
		keep   bool
	}{
		"refused for good": {handle: func(context.Context) error { return status.Error(codes.FailedPrecondition, "declined") }},
		"with headers sent already": {handle: func(ctx context.Context) error {
			_ = grpc.SendHeader(ctx, nil)
			return status.Error(codes.NotFound, "no card")
		}},
		"may have happened": {handle: func(context.Context) error { return status.Error(codes.Unavailable, "bank away") }, keep: true},
		"not guarded":       {guard: idemgrpc.Guard{Need: idemgrpc.Off}, handle: func(context.Context) error { return status.Error(codes.FailedPrecondition, "declined") }, keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, guarding(c.guard), idem.Options{})
			s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				return nil, c.handle(ctx)
			}
			keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{unary}})
			if err != nil {
				t.Fatal(err)
			}
			invoke := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, o ...grpc.CallOption) error {
				return conn.Invoke(ctx, method, request, reply, o...)
			}
			ctx := idemgrpc.WithKey(guardtest.Bounded(t), "k")
			for _, try := range []string{"the first call", "its repetition"} {
				var header metadata.MD
				err := keys(ctx, unary, order(1), &testpb.SimpleResponse{}, s.conn, invoke, grpc.Header(&header))
				if idemgrpc.KeepKey(err) != c.keep {
					t.Errorf("%s: %v, and to keep the key: %v", try, err, idemgrpc.KeepKey(err))
				}
				if recorded := header.Get(idemgrpc.ExpiresHeader) != nil; name == "refused for good" && !recorded {
					t.Errorf("%s: the caller's own option is not served", try)
				}
			}
		})
	}
}

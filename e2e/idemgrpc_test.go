package e2e

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const orderMethod = testpb.TestService_UnaryCall_FullMethodName

// orders is a gRPC service whose one effect a test writes.
type orders struct {
	testpb.UnimplementedTestServiceServer
	effect func(context.Context) (*testpb.SimpleResponse, error)
}

func (o *orders) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return o.effect(ctx)
}

// replica is one server of the service.
type replica struct {
	addr   string
	server *grpc.Server
}

// serveOrders runs a replica, with these interceptors in this order, until the test ends.
func serveOrders(t *testing.T, effect func(context.Context) (*testpb.SimpleResponse, error), o ...grpc.ServerOption) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{addr: listener.Addr().String(), server: grpc.NewServer(o...)}
	testpb.RegisterTestServiceServer(r.server, &orders{effect: effect})
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.Serve(listener)
	}()
	t.Cleanup(func() {
		r.server.Stop()
		<-served
	})
	return r
}

// guardOrders is the guard of a replica whose idemd is at an address.
func guardOrders(t *testing.T, daemon string, g idemgrpc.Guard, o idem.Options) grpc.UnaryServerInterceptor {
	t.Helper()
	o.Tenant = "acme"
	guard, err := idemgrpc.UnaryServerInterceptor(newClient(t, daemon, o), idemgrpc.Config{Methods: map[string]idemgrpc.Guard{orderMethod: g}})
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// ordered is all that a caller hears.
type ordered struct {
	response *testpb.SimpleResponse
	replayed bool
	err      error
}

func (r *replica) order(ctx context.Context, t *testing.T, o ...grpc.DialOption) ordered {
	t.Helper()
	return orderAt(ctx, t, r.addr, o...)
}

func orderAt(ctx context.Context, t *testing.T, addr string, o ...grpc.DialOption) ordered {
	t.Helper()
	var header metadata.MD
	response, err := testpb.NewTestServiceClient(harness.Dial(t, addr, o...)).UnaryCall(ctx, &testpb.SimpleRequest{ResponseSize: 1}, grpc.Header(&header))
	return ordered{response, header.Get(idemgrpc.ReplayedHeader) != nil, err}
}

func withKey(ctx context.Context, key string) context.Context { return idemgrpc.WithKey(ctx, key) }

func TestFiftyGuardedCallsAtOnceWithOneKeyHaveOneEffectAndFiftyAnswers(t *testing.T) {
	fiftyAtOnce(t, func(t *testing.T, daemon string, effect func() string) func() (string, bool, error) {
		r := serveOrders(t, func(context.Context) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Username: effect()}, nil
		},
			grpc.ChainUnaryInterceptor(guardOrders(t, daemon, idemgrpc.Guard{}, idem.Options{})))
		return func() (string, bool, error) {
			got := r.order(withKey(harness.Bounded(t), "k"), t)
			return got.response.GetUsername(), got.replayed, got.err
		}
	})
}

// gRPC repeats the caller's call, whose answers are lost, by its service config; each
// copy arrives twice, as hedges do.
func TestGuardedCallsThatTheNetworkRepeatsAndDoublesHaveOneEffect(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		var effects atomic.Int32
		guard := guardOrders(t, house.Serve(t, s).GRPC, idemgrpc.Guard{}, idem.Options{})
		r := serveOrders(t, func(context.Context) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Username: fmt.Sprint("effect ", effects.Add(1))}, nil
		}, grpc.ChainUnaryInterceptor(guard))
		proxy := harness.GRPC(t, r.addr)
		var tries atomic.Int32
		proxy.Break(func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
			answer, err := fault.Twice(ctx, method, forward)
			if tries.Add(1) < 3 {
				return nil, fault.ErrLost()
			}
			return answer, err
		})
		keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{orderMethod}})
		if err != nil {
			t.Fatal(err)
		}
		const policy = `{"methodConfig": [{"name": [{"service": "grpc.testing.TestService"}], "retryPolicy": {
			"maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`
		got := orderAt(harness.Bounded(t), t, proxy.Addr(), grpc.WithDefaultServiceConfig(policy), grpc.WithChainUnaryInterceptor(keys))
		if got.err != nil || got.response.GetUsername() != "effect 1" || effects.Load() != 1 || tries.Load() != 3 {
			t.Errorf("answered %v, %v; %d effects in %d tries", got.response, got.err, effects.Load(), tries.Load())
		}
	})
}

// The daemon restarts in the middle of a guarded call.
func TestAGuardedCallOutlivesARestartOfTheDaemon(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		var effects atomic.Int32
		r := serveOrders(t, func(context.Context) (*testpb.SimpleResponse, error) {
			d.Kill()
			harness.Restart(t, d)
			return &testpb.SimpleResponse{Username: fmt.Sprint("effect ", effects.Add(1))}, nil
		}, grpc.ChainUnaryInterceptor(guardOrders(t, d.GRPC, idemgrpc.Guard{}, idem.Options{})))
		for i := range 2 {
			got := r.order(withKey(harness.Bounded(t), "k"), t)
			if got.err != nil || got.response.GetUsername() != "effect 1" || got.replayed != (i > 0) {
				t.Errorf("answered %v, %v", got.response, got.err)
			}
		}
		if is := dial(t, d.GRPC).lookup(t, "k"); is.GetState() != idemdv1.State_STATE_SUCCEEDED {
			t.Errorf("stored is %v", is)
		}
	})
}

// A guarded call whose Complete comes back after its caller's deadline.
func TestAGuardedCallWhoseDeadlineEndsBeforeItIsRecordedIsReplayed(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	proxy := harness.GRPC(t, d.GRPC)
	var effects atomic.Int32
	r := serveOrders(t, func(ctx context.Context) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		return &testpb.SimpleResponse{Username: fmt.Sprint("effect ", effects.Add(1))}, nil
	}, grpc.ChainUnaryInterceptor(guardOrders(t, proxy.Addr(), idemgrpc.Guard{Lease: time.Minute}, idem.Options{})))
	proxy.Break(fault.On(completeMethod, fault.DelayAnswer(150*time.Millisecond)))
	ctx, cancel := context.WithTimeout(harness.Bounded(t), 300*time.Millisecond)
	defer cancel()
	if got := r.order(withKey(ctx, "k"), t); got.err == nil {
		t.Errorf("answered %v", got.response)
	}
	if got := r.order(withKey(harness.Bounded(t), "k"), t); got.err != nil || !got.replayed || got.response.GetUsername() != "effect 1" {
		t.Errorf("the retry is answered %v, %v", got.response, got.err)
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/retry"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
)

// neighbours are what a server has in its chain beside a guard.
func neighbours(guard grpc.UnaryServerInterceptor) map[string]grpc.UnaryServerInterceptor {
	silent := logging.LoggerFunc(func(context.Context, logging.Level, string, ...any) {})
	orders := selector.MatchFunc(func(_ context.Context, c interceptors.CallMeta) bool { return c.FullMethod() == orderMethod })
	return map[string]grpc.UnaryServerInterceptor{
		"auth":     auth.UnaryServerInterceptor(func(ctx context.Context) (context.Context, error) { return ctx, nil }),
		"guard":    selector.UnaryServerInterceptor(guard, orders),
		"logging":  logging.UnaryServerInterceptor(silent, logging.WithLogOnEvents(logging.StartCall, logging.FinishCall, logging.PayloadReceived)),
		"recovery": recovery.UnaryServerInterceptor(),
	}
}

// orderings are all orders of the names.
func orderings(names []string) (all [][]string) {
	if len(names) == 0 {
		return [][]string{nil}
	}
	for i, name := range names {
		rest := append(append([]string{}, names[:i]...), names[i+1:]...)
		for _, order := range orderings(rest) {
			all = append(all, append([]string{name}, order...))
		}
	}
	return all
}

func TestAGuardInAnyOrderWithItsNeighboursLosesNoOutcome(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	chained := neighbours(guardOrders(t, d.GRPC, idemgrpc.Guard{}, idem.Options{Logger: slog.New(slog.DiscardHandler)}))
	direct := dial(t, d.GRPC)
	endings := map[string]struct {
		end    func(context.Context) (*testpb.SimpleResponse, error)
		stored string
		retry  codes.Code
	}{
		"response": {attempted, "STATE_SUCCEEDED", codes.OK},
		"refusal": {func(context.Context) (*testpb.SimpleResponse, error) {
			return nil, status.Error(codes.NotFound, "no card")
		},
			"STATE_FAILED_FINAL", codes.NotFound},
		"error": {func(context.Context) (*testpb.SimpleResponse, error) { return nil, errors.New("?") }, "STATE_UNKNOWN", codes.FailedPrecondition},
		"panic": {func(context.Context) (*testpb.SimpleResponse, error) { panic("in the middle") }, "STATE_UNKNOWN", codes.FailedPrecondition},
	}
	for _, order := range orderings([]string{"auth", "guard", "logging", "recovery"}) {
		var chain []grpc.UnaryServerInterceptor
		for _, name := range order {
			chain = append(chain, chained[name])
		}
		for name, c := range endings {
			r := serveOrders(t, c.end, grpc.ChainUnaryInterceptor(chain...), grpc.StatsHandler(otelgrpc.NewServerHandler()))
			key := strings.Join(append(order, name), "-")
			first := r.order(withKey(harness.Bounded(t), key), t)
			again := r.order(withKey(harness.Bounded(t), key), t)
			if is := direct.lookup(t, key); is.GetState().String() != c.stored || is.GetAttempt() != 1 {
				t.Errorf("%s: stored is %v", key, is)
			}
			if (first.err == nil) != (c.retry == codes.OK) || status.Code(again.err) != c.retry {
				t.Errorf("%s: answered %v, then %v", key, first.err, again.err)
			}
		}
	}
}

// Keys before retries: docs/guards.md.
func TestGuardedCallsThatAnInterceptorRepeatsHaveOneEffect(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	var effects, tries atomic.Int32
	guard := guardOrders(t, d.GRPC, idemgrpc.Guard{}, idem.Options{})
	r := serveOrders(t, func(context.Context) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Username: fmt.Sprint("effect ", effects.Add(1))}, nil
	}, grpc.ChainUnaryInterceptor(guard))
	proxy := harness.GRPC(t, r.addr)
	proxy.Break(func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
		if tries.Add(1)%3 != 0 {
			return fault.LoseAnswer(ctx, method, forward)
		}
		return forward(ctx)
	})
	keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{Methods: []string{orderMethod}})
	if err != nil {
		t.Fatal(err)
	}
	repeating := retry.UnaryClientInterceptor(retry.WithMax(5), retry.WithCodes(codes.Unavailable), retry.WithBackoff(retry.BackoffLinearWithJitter(1e6, 0)))
	for want := range 2 {
		got := orderAt(harness.Bounded(t), t, proxy.Addr(), grpc.WithChainUnaryInterceptor(keys, repeating))
		if got.err != nil || got.response.GetUsername() != fmt.Sprint("effect ", want+1) || tries.Load() != int32(3*(want+1)) {
			t.Errorf("answered %v, %v after %d tries", got.response, got.err, tries.Load())
		}
	}
	// The wrong way round, each try is a call of its own.
	before := effects.Load()
	if got := orderAt(harness.Bounded(t), t, proxy.Addr(), grpc.WithChainUnaryInterceptor(repeating, keys)); got.err != nil || effects.Load() != before+3 {
		t.Errorf("answered %v with %d effects: the page says that this order protects from nothing", got.err, effects.Load()-before)
	}
}

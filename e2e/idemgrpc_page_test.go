package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/examples/charge/child"
)

// docs/guards.md says how a guarded handler can end and what follows. Each row is walked
// in each of its modes, on each store.
func TestEveryEndingOfAGuardedHandlerIsAsThePageSays(t *testing.T) {
	page[*grpcWalk]{
		rows: endingRows(t, "guards.md", "### How a handler can end", "the handler"), begin: newGRPCWalk, ways: grpcEndings(),
	}.walk(t)
}

// grpcWalk is one row of the gRPC guard's.
type grpcWalk struct {
	guardWalk

	// What an ending may change, before first.
	guard idemgrpc.Guard
	// before and behind are interceptors on either side of the guard, on both replicas.
	before, behind []grpc.UnaryServerInterceptor
	// end is what the first handler does; the other's answers its attempt's number.
	end     func(context.Context) (*testpb.SimpleResponse, error)
	status  *status.Status // the handler's own
	ctx     context.Context
	replica *replica
}

func newGRPCWalk(t *testing.T, d *child.Daemon, key string, mode idem.Mode) *grpcWalk {
	return &grpcWalk{
		guardWalk: newGuardWalk(t, d, key), end: attempted, guard: idemgrpc.Guard{Mode: mode, Lease: time.Minute},
		ctx: withKey(harness.Bounded(t), key),
	}
}

// attempted is a response that tells its attempt.
func attempted(ctx context.Context) (*testpb.SimpleResponse, error) {
	g, guarded := idem.GrantFrom(ctx)
	if !guarded {
		return nil, errors.New("the handler runs unguarded")
	}
	return &testpb.SimpleResponse{Username: fmt.Sprint("attempt ", g.Attempt)}, nil
}

func (w *grpcWalk) serve(daemon string, o idem.Options, effect func(context.Context) (*testpb.SimpleResponse, error)) *replica {
	chain := append(append(append([]grpc.UnaryServerInterceptor{}, w.before...), guardOrders(w.T, daemon, w.guard, o)), w.behind...)
	return serveOrders(w.T, effect, grpc.ChainUnaryInterceptor(chain...))
}

// first calls the replica on which the row happens.
func (w *grpcWalk) first() (said, full string) {
	w.replica = w.serve(w.proxy.Addr(), w.options, func(ctx context.Context) (*testpb.SimpleResponse, error) { return w.end(ctx) })
	return w.said(w.replica.order(w.ctx, w.T))
}

// retry is the same call, made by somebody else, who has time.
func (w *grpcWalk) retry() (said, full string) {
	ctx := harness.Bounded(w.T)
	if w.key != "" {
		ctx = withKey(ctx, w.key)
	}
	w.guard.MinRemaining = 0
	return w.said(w.serve(w.daemon.GRPC, idem.Options{}, attempted).order(ctx, w.T))
}

// said puts an answer into the page's words.
func (w *grpcWalk) said(got ordered) (text, full string) {
	st, reason := status.Convert(got.err), idemgrpc.ReasonOf(got.err)
	switch {
	case got.err == nil && got.response.GetUsername() == "attempt 1":
		text = "the response"
	case got.err == nil:
		text = "the response of " + got.response.GetUsername()
	case w.status != nil && st.Code() == w.status.Code() && st.Message() == w.status.Message():
		text = "the status"
	case st.Message() == recovered, st.Message() == malformed:
		text = st.Message()
	case st.Code() == codes.Canceled:
		text = "nothing: it has gone"
	case reason == "":
		text = code.Code(st.Code()).String() + ", from gRPC"
	default:
		text = code.Code(st.Code()).String()
	}
	if reason != "" {
		text += ", " + string(reason)
	}
	if got.replayed && reason != idemgrpc.ReasonAnswerNotKept {
		text += ", replayed"
	}
	return text, fmt.Sprintf("%v, %v", got.response.GetUsername(), got.err)
}

// grpcEndings are the ways in which the rows can come about, by their names on the page.
func grpcEndings() map[string][]func(*grpcWalk) {
	const others = "another status"
	refusals := "InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, OutOfRange, Unauthenticated, PermissionDenied, Unimplemented"
	all := map[string][]func(*grpcWalk){}
	for name, way := range namedGRPCEndings() {
		all[name] = []func(*grpcWalk){way}
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		name := others
		if slices.Contains(strings.Split(refusals, ", "), c.String()) {
			name = refusals
		}
		all[name] = append(all[name], ending(status.Error(c, "so it ended")))
	}
	return all
}

// ending is a handler that ends with an error.
func ending(err error) func(*grpcWalk) {
	return func(w *grpcWalk) {
		cause := err
		if inner := errors.Unwrap(err); inner != nil {
			cause = inner // of a declaration
		}
		w.status = status.Convert(cause)
		w.end = func(context.Context) (*testpb.SimpleResponse, error) { return nil, err }
	}
}

const (
	recovered = "what recovery says"
	malformed = "what Validate says"
)

func namedGRPCEndings() map[string]func(*grpcWalk) {
	bankAway := status.Error(codes.Unavailable, "bank away")
	return map[string]func(*grpcWalk){
		"a response":                 func(*grpcWalk) {},
		"an error that is no status": ending(errors.New("no status")),
		"NotExecuted(err)":           ending(idem.NotExecuted(bankAway)),
		"Final(err)":                 ending(idem.Final(bankAway)),
		"Unknown(err)":               ending(idem.Unknown(bankAway)),

		"a panic, recovery before the guard": func(w *grpcWalk) { w.before = panicking(w) },
		"a panic, recovery behind the guard": func(w *grpcWalk) { w.behind = panicking(w) },

		"a response, its caller gone":         guardedCallerGone,
		"a response, its lease lost":          guardedLeaseLost,
		"a response too large to keep":        responding(&testpb.SimpleResponse{Username: "attempt 1", Payload: &testpb.Payload{Body: make([]byte, idem.MaxBodyBytes)}}),
		"a response that can't be serialised": responding(&testpb.SimpleResponse{Username: "\xff"}),

		"a response, the daemon away for longer than FinishTimeout": func(w *grpcWalk) { w.loseComplete(); w.heal = func() { w.proxy.Break(nil) } },
		"a response, the daemon away for too long":                  func(w *grpcWalk) { w.loseComplete(); w.guard.Lease = shortLease },
		"the end of its process":                                    guardedProcessEnds,

		"not started: Validate refuses": func(w *grpcWalk) {
			w.guard.Validate = func(context.Context, proto.Message) error { return status.Error(codes.InvalidArgument, malformed) }
		},
		"not started: there is no key": func(w *grpcWalk) { w.key, w.ctx = "", harness.Bounded(w.T) },
		"not started: the daemon is away": func(w *grpcWalk) {
			w.options.Patience = time.Millisecond
			w.proxy.Break(fault.LoseRequest)
		},
		"not started: too little time is left": func(w *grpcWalk) { w.guard.MinRemaining = time.Hour },
	}
}

func responding(response *testpb.SimpleResponse) func(*grpcWalk) {
	return func(w *grpcWalk) {
		w.end = func(context.Context) (*testpb.SimpleResponse, error) { return response, nil }
	}
}

// panicking makes the first handler panic, and is what recovers from it.
func panicking(w *grpcWalk) []grpc.UnaryServerInterceptor {
	w.end = func(context.Context) (*testpb.SimpleResponse, error) { panic("in the middle") }
	return []grpc.UnaryServerInterceptor{func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, recovered)
			}
		}()
		return next(ctx, r)
	}}
}

func guardedCallerGone(w *grpcWalk) {
	ctx, hangUp := context.WithCancel(w.ctx)
	w.ctx = ctx
	w.end = func(ctx context.Context) (*testpb.SimpleResponse, error) {
		hangUp()
		<-ctx.Done()
		return attempted(ctx)
	}
}

func guardedLeaseLost(w *grpcWalk) {
	w.guard.Lease = shortLease
	w.proxy.Break(fault.On(extendMethod, fault.LoseRequest))
	w.end = func(ctx context.Context) (*testpb.SimpleResponse, error) {
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), idem.ErrLeaseLost) {
			w.Errorf("the context ended with %v", context.Cause(ctx))
		}
		return attempted(ctx)
	}
}

// guardedProcessEnds: what the daemon and the caller see of a process that ends.
func guardedProcessEnds(w *grpcWalk) {
	w.guard.Lease = shortLease
	over := make(chan struct{})
	w.Cleanup(func() { close(over) })
	w.end = func(context.Context) (*testpb.SimpleResponse, error) {
		w.proxy.Break(fault.LoseRequest)
		go w.replica.server.Stop()
		<-over
		return nil, errors.New("nobody hears of it")
	}
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// docs/guards.md says how a guarded handler can end and what follows. Each row is walked
// in each of its modes, on each store.
func TestEveryEndingOfAGuardedHandlerIsAsThePageSays(t *testing.T) {
	rows := guardRows(t, "### How a handler can end")
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		walked := map[string]bool{}
		for i, row := range rows {
			walked[row.ending] = true
			for j, end := range guardEndings(row.ending) {
				for _, mode := range row.modes(t) {
					t.Run(fmt.Sprintf("%.60s, %s, %d", row.ending, mode.name, j), func(t *testing.T) {
						w := newGuardWalk(t, d, fmt.Sprintf("row-%d-%d-%s", i, j, mode.name), mode.mode)
						end(w)
						w.hears("the caller", w.first(), row.returns)
						w.heal()
						w.mustBeStored(row.stored)
						w.hears("the retry", w.retry(), row.hears)
					})
				}
			}
		}
		for ending := range namedGuardEndings() {
			if !walked[ending] {
				t.Errorf("the page does not tell of %q", ending)
			}
		}
	})
}

// guardRows are the rows of the table under a heading of docs/guards.md.
func guardRows(t *testing.T, heading string) (rows []endingRow) {
	t.Helper()
	page, err := os.ReadFile("../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n##")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| the handler ends with") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, endingRow{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	if len(rows) < 25 {
		t.Fatalf("only %d rows were found", len(rows))
	}
	return rows
}

// guardWalk is one row on its way: a replica whose idemd is behind a proxy, and another
// one, for the retry, that reaches it directly.
type guardWalk struct {
	*testing.T
	key    string
	daemon *child.Daemon
	proxy  *fault.GRPC

	// What an ending may change, before first.
	guard   idemgrpc.Guard
	options idem.Options
	// before and behind are interceptors on either side of the guard, on both replicas.
	before, behind []grpc.UnaryServerInterceptor
	// end is what the first handler does; the other's answers its attempt's number.
	end     func(context.Context) (*testpb.SimpleResponse, error)
	status  *status.Status // the handler's own
	ctx     context.Context
	replica *replica
	// heal is done once the caller has its answer.
	heal func()
}

func newGuardWalk(t *testing.T, d *child.Daemon, key string, mode idem.Mode) *guardWalk {
	w := &guardWalk{T: t, key: key, daemon: d, proxy: harness.GRPC(t, d.GRPC), end: attempted, heal: func() {}}
	w.guard = idemgrpc.Guard{Mode: mode, Lease: time.Minute}
	w.ctx = withKey(harness.Bounded(t), key)
	return w
}

// attempted is a response that tells its attempt.
func attempted(ctx context.Context) (*testpb.SimpleResponse, error) {
	g, guarded := idem.GrantFrom(ctx)
	if !guarded {
		return nil, errors.New("the handler runs unguarded")
	}
	return &testpb.SimpleResponse{Username: fmt.Sprint("attempt ", g.Attempt)}, nil
}

func (w *guardWalk) serve(daemon string, o idem.Options, effect func(context.Context) (*testpb.SimpleResponse, error)) *replica {
	chain := append(append(append([]grpc.UnaryServerInterceptor{}, w.before...), guardOrders(w.T, daemon, w.guard, o)), w.behind...)
	return serveOrders(w.T, effect, grpc.ChainUnaryInterceptor(chain...))
}

// first calls the replica on which the row happens.
func (w *guardWalk) first() ordered {
	w.replica = w.serve(w.proxy.Addr(), w.options, func(ctx context.Context) (*testpb.SimpleResponse, error) { return w.end(ctx) })
	return w.replica.order(w.ctx, w.T)
}

// retry is the same call, made by somebody else, who has time.
func (w *guardWalk) retry() ordered {
	ctx := harness.Bounded(w.T)
	if w.key != "" {
		ctx = withKey(ctx, w.key)
	}
	w.guard.MinRemaining = 0
	return w.serve(w.daemon.GRPC, idem.Options{}, attempted).order(ctx, w.T)
}

func (w *guardWalk) hears(who string, got ordered, want string) {
	w.Helper()
	if said := w.said(got); said != want {
		w.Errorf("%s hears %s (%v, %v), want %s", who, said, got.response.GetUsername(), got.err, want)
	}
}

// said puts an answer into the page's words.
func (w *guardWalk) said(got ordered) string {
	var text string
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
	return text
}

func (w *guardWalk) mustBeStored(want string) {
	w.Helper()
	direct := dial(w.T, w.daemon.GRPC)
	var is string
	harness.Until(w, "the state "+want, func() bool {
		answer, err := direct.Lookup(harness.Bounded(w.T), &idemdv1.LookupRequest{Tenant: "acme", Key: w.key})
		is = strings.TrimPrefix(answer.GetReservation().GetState().String(), "STATE_")
		if w.key == "" || status.Code(err) == codes.NotFound {
			is = "nothing"
		}
		return is == want
	})
}

// guardEndings are the ways in which a row can come about, by its name on the page.
func guardEndings(name string) []func(*guardWalk) {
	if end, named := namedGuardEndings()[name]; named {
		return []func(*guardWalk){end}
	}
	refusals := "InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, OutOfRange, Unauthenticated, PermissionDenied, Unimplemented"
	var all []func(*guardWalk)
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if refused := strings.Contains(refusals, c.String()); refused && name == refusals || !refused && name == "another status" {
			all = append(all, ending(status.Error(c, "so it ended")))
		}
	}
	if all == nil {
		all = append(all, func(w *guardWalk) { w.Fatal("nobody knows how to walk this row") })
	}
	return all
}

// ending is a handler that ends with an error.
func ending(err error) func(*guardWalk) {
	return func(w *guardWalk) {
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

func namedGuardEndings() map[string]func(*guardWalk) {
	bankAway := status.Error(codes.Unavailable, "bank away")
	return map[string]func(*guardWalk){
		"a response":                 func(*guardWalk) {},
		"an error that is no status": ending(errors.New("no status")),
		"NotExecuted(err)":           ending(idem.NotExecuted(bankAway)),
		"Final(err)":                 ending(idem.Final(bankAway)),
		"Unknown(err)":               ending(idem.Unknown(bankAway)),

		"a panic, recovery before the guard": func(w *guardWalk) { w.before = panicking(w) },
		"a panic, recovery behind the guard": func(w *guardWalk) { w.behind = panicking(w) },

		"a response, its caller gone":         guardedCallerGone,
		"a response, its lease lost":          guardedLeaseLost,
		"a response too large to keep":        responding(&testpb.SimpleResponse{Username: "attempt 1", Payload: &testpb.Payload{Body: make([]byte, idem.MaxBodyBytes)}}),
		"a response that can't be serialised": responding(&testpb.SimpleResponse{Username: "\xff"}),

		"a response, the daemon away for longer than FinishTimeout": func(w *guardWalk) { withoutComplete(w); w.heal = func() { w.proxy.Break(nil) } },
		"a response, the daemon away for too long":                  func(w *guardWalk) { withoutComplete(w); w.guard.Lease = shortLease },
		"the end of its process":                                    guardedProcessEnds,

		"not started: Validate refuses": func(w *guardWalk) {
			w.guard.Validate = func(context.Context, proto.Message) error { return status.Error(codes.InvalidArgument, malformed) }
		},
		"not started: there is no key": func(w *guardWalk) { w.key, w.ctx = "", harness.Bounded(w.T) },
		"not started: the daemon is away": func(w *guardWalk) {
			w.options.Patience = time.Millisecond
			w.proxy.Break(fault.LoseRequest)
		},
		"not started: too little time is left": func(w *guardWalk) { w.guard.MinRemaining = time.Hour },
	}
}

func responding(response *testpb.SimpleResponse) func(*guardWalk) {
	return func(w *guardWalk) {
		w.end = func(context.Context) (*testpb.SimpleResponse, error) { return response, nil }
	}
}

// panicking makes the first handler panic, and is what recovers from it.
func panicking(w *guardWalk) []grpc.UnaryServerInterceptor {
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

func guardedCallerGone(w *guardWalk) {
	ctx, hangUp := context.WithCancel(w.ctx)
	w.ctx = ctx
	w.end = func(ctx context.Context) (*testpb.SimpleResponse, error) {
		hangUp()
		<-ctx.Done()
		return attempted(ctx)
	}
}

func guardedLeaseLost(w *guardWalk) {
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

// withoutComplete loses what the first replica tells its daemon at the end.
func withoutComplete(w *guardWalk) {
	w.options.FinishTimeout = 100 * time.Millisecond
	w.proxy.Break(fault.On(completeMethod, fault.LoseRequest))
}

// guardedProcessEnds: what the daemon and the caller see of a process that ends.
func guardedProcessEnds(w *guardWalk) {
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

package idemgrpc_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestThePageSaysWhatEachStatusMeans(t *testing.T) {
	means := map[string]idemgrpc.Outcome{
		"refused for good: replayed": idemgrpc.OutcomeFinal,
		"in External it may have happened; in Transactional it was rolled back": idemgrpc.OutcomeUndeclared,
	}
	named, others := map[string]string{}, ""
	for _, row := range guardtest.Table(t, "### What a status means") {
		what, _, _ := strings.Cut(row[1], ". ")
		if row[0] == "all others" {
			others = what
			continue
		}
		for name := range strings.SplitSeq(row[0], ", ") {
			if named[name] != "" {
				t.Errorf("the page tells twice of %s", name)
			}
			named[name] = what
		}
	}
	if named["OK"] != "done: Complete" {
		t.Errorf("of OK the page says %q", named["OK"])
	}
	delete(named, "OK")
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		what, is := named[c.String()]
		if !is {
			what = others
		}
		delete(named, c.String())
		if want, known := means[what]; !known || idemgrpc.DefaultOutcome(c) != want {
			t.Errorf("of %v the page says %q", c, what)
		}
	}
	if len(named) > 0 {
		t.Errorf("there are no statuses %v", named)
	}
}

// own is what the page calls the code of a handler's answer.
const own = "the handler's own"

func TestThePageTellsOfEachAnswerOfTheGuard(t *testing.T) {
	const retries = ", with RetryInfo"
	ways := answers()
	for _, row := range guardtest.Table(t, "### Answers of the guard") {
		for name := range strings.SplitSeq(row[0], ", ") {
			at := name
			if row[1] == own {
				at += ", " + own
			}
			if len(ways[at]) == 0 {
				t.Errorf("nobody knows how to hear %s, or the page tells of it twice", at)
			}
			var said []string
			hints := 0
			for _, way := range ways[at] {
				handlers, err := way(t)
				if idemgrpc.ReasonOf(err) != idemgrpc.Reason(name) || fmt.Sprint(idemgrpc.KeepKey(err)) != row[2] {
					t.Errorf("%s, to keep the key: %v, but heard is %v (%s)", name, row[2], err, idemgrpc.ReasonOf(err))
				}
				c := code.Code(status.Code(err)).String()
				if handlers != codes.OK && status.Code(err) == handlers {
					c = own
				}
				if !slices.Contains(said, c) {
					said = append(said, c)
				}
				if retryAfter(err) > 0 {
					hints++
				}
			}
			text := strings.Join(said, ", ")
			switch hints {
			case 0:
			case len(ways[at]):
				text += retries
			default:
				text += retries + " where it is known"
			}
			if text != row[1] {
				t.Errorf("%s: the page says %q, heard is %q", name, row[1], text)
			}
			delete(ways, at)
		}
	}
	for at := range ways {
		t.Errorf("the page does not tell of %s", at)
	}
	for _, reason := range guardtest.Reasons(t) {
		_, guards := answers()[reason]
		_, handlers := answers()[reason+", "+own]
		if !guards && !handlers && reason != "NO_SUCH_REQUEST" { // of HTTP
			t.Errorf("nobody hears %s", reason)
		}
	}
}

// way lets a guard answer. handlers is the code of the handler's status, OK = none has run.
type way func(t *testing.T) (handlers codes.Code, err error)

// again is the second of two calls under one key; the first one's handler ends with end.
func again(g idemgrpc.Guard, size int32, end func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error)) way {
	return func(t *testing.T) (codes.Code, error) {
		s := open(t, guarding(g), idem.Options{})
		s.handle = end
		_ = s.call(t, "k", order(1))
		return codes.OK, s.call(t, "k", order(size)).err
	}
}

// directly is the answer to a request that gRPC would not bring, or whose context it
// would not keep.
func directly(g idemgrpc.Guard, request proto.Message, prepare func(context.Context, *fakedaemon.Daemon) (context.Context, grpc.ClientConnInterface)) way {
	return func(t *testing.T) (codes.Code, error) {
		d := fakedaemon.New()
		ctx, conn := prepare(metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, "k")), d)
		guard, err := idemgrpc.UnaryServerInterceptor(guardtest.Client(t, conn, idem.Options{Patience: time.Millisecond}), guarding(g))
		if err != nil {
			t.Fatal(err)
		}
		_, err = guard(ctx, request, &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) {
			t.Error("the handler has run")
			return nil, nil
		})
		return codes.OK, err
	}
}

// faulty is the answer while the daemon answers so.
func faulty(fault error) way {
	return func(t *testing.T) (codes.Code, error) {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{Patience: time.Millisecond})
		s.Daemon.Fault(func(proto.Message) error { return fault })
		return codes.OK, s.call(t, "k", order(1)).err
	}
}

// ending is a handler's answer, while the daemon takes outcomes or not.
func ending(end error, takes bool) way {
	return func(t *testing.T) (codes.Code, error) {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{FinishTimeout: time.Millisecond})
		s.handle = failing(end)
		s.Daemon.Fault(func(m proto.Message) error {
			if _, reserving := m.(*idemdv1.ReserveRequest); !reserving && !takes {
				return status.Error(codes.PermissionDenied, "no")
			}
			return nil
		})
		return status.Code(end), s.call(t, "k", order(1)).err
	}
}

// lapsing is a daemon whose grants are over when they arrive.
type lapsing struct{ *fakedaemon.Daemon }

func (d lapsing) Invoke(ctx context.Context, method string, request, reply any, o ...grpc.CallOption) error {
	err := d.Daemon.Invoke(ctx, method, request, reply, o...)
	if r, is := reply.(*idemdv1.ReserveResponse); is && r.GetOwned() != nil {
		r.GetOwned().LeaseRemaining = durationpb.New(0)
	}
	return err
}

// answers are the ways in which each reason comes about.
func answers() map[string][]way {
	plain := func(ctx context.Context, d *fakedaemon.Daemon) (context.Context, grpc.ClientConnInterface) {
		return ctx, d
	}
	unknown := failing(status.Error(codes.Internal, "?"))
	expired, _ := status.New(codes.FailedPrecondition, "").WithDetails(&errdetails.ErrorInfo{Domain: "idemd", Reason: string(idem.KeyMayHaveExpired)})
	return map[string][]way{
		"IN_PROGRESS": {func(t *testing.T) (codes.Code, error) {
			s := open(t, guarding(idemgrpc.Guard{Wait: -1}), idem.Options{})
			end := s.busy(t)
			defer end()
			return codes.OK, s.call(t, "k", order(1)).err
		}},
		"OUTCOME_UNKNOWN": {again(idemgrpc.Guard{}, 1, unknown), again(idemgrpc.Guard{
			Settle: 2 * time.Hour, Wait: -1,
			Reconcile: func(context.Context, proto.Message, *idem.Unresolved) (idem.Verdict, error) {
				return idem.WasNotExecuted(), nil
			},
		}, 1, unknown)},
		"FINGERPRINT_MISMATCH": {again(idemgrpc.Guard{}, 2, nil)},
		"KEY_MAY_HAVE_EXPIRED": {faulty(expired.Err())},
		"ANSWER_NOT_KEPT": {again(idemgrpc.Guard{}, 1, func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Username: strings.Repeat("x", idem.MaxBodyBytes)}, nil
		})},
		"KEY_REQUIRED": {func(t *testing.T) (codes.Code, error) {
			return codes.OK, open(t, guarding(idemgrpc.Guard{}), idem.Options{}).callIn(guardtest.Bounded(t), order(1)).err
		}},
		"KEY_INVALID": {func(t *testing.T) (codes.Code, error) {
			return codes.OK, open(t, guarding(idemgrpc.Guard{}), idem.Options{}).call(t, "a,b", order(1)).err
		}},
		"REQUEST_REFUSED":   {directly(idemgrpc.Guard{}, &testpb.Empty{}, plain)},
		"REQUEST_TOO_LARGE": {directly(idemgrpc.Guard{}, &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, fingerprint.MaxBytes+1)}}, plain)},
		"GUARD_UNAVAILABLE": {faulty(status.Error(codes.Unavailable, "connection refused"))},
		"GUARD_REFUSED":     {faulty(status.Error(codes.PermissionDenied, "no"))},
		"NOT_STARTED": {
			directly(idemgrpc.Guard{MinRemaining: time.Hour}, order(1), plain),
			directly(idemgrpc.Guard{}, order(1), func(ctx context.Context, d *fakedaemon.Daemon) (context.Context, grpc.ClientConnInterface) {
				gone, hangUp := context.WithCancel(ctx)
				hangUp()
				return gone, d
			}),
			directly(idemgrpc.Guard{}, order(1), func(ctx context.Context, d *fakedaemon.Daemon) (context.Context, grpc.ClientConnInterface) {
				d.Fault(func(m proto.Message) error {
					if _, extending := m.(*idemdv1.ExtendRequest); extending {
						return status.Error(codes.PermissionDenied, "no")
					}
					return nil
				})
				return ctx, lapsing{d}
			}),
		},
		"NOT_EXECUTED, " + own:    {ending(idem.NotExecuted(status.Error(codes.NotFound, "no card")), true)},
		"OUTCOME_UNKNOWN, " + own: {ending(status.Error(codes.DataLoss, "?"), true), ending(status.Error(codes.DataLoss, "?"), false)},
		"NOT_RECORDED, " + own:    {ending(status.Error(codes.NotFound, "no card"), false)},
	}
}

package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// retryAfter is the hint in an answer; 0 = there is none.
func retryAfter(err error) time.Duration {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.RetryInfo); is {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func TestWhatIsUnderWayAndWhatIsMisusedAreToldApart(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Wait: -1}), idem.Options{})
	end := s.busy(t)
	asked := time.Now()
	running := s.call(t, "k", order(1))
	if waited := time.Since(asked); waited > 20*time.Second {
		t.Errorf("it waited %v, and should not", waited)
	}
	wantRefusal(t, running.err, codes.Aborted, idemgrpc.ReasonInProgress, true)
	if retryAfter(running.err) <= 0 {
		t.Error("it does not say when to come back")
	}
	wantRefusal(t, s.call(t, "k", order(2)).err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
	if a := end(); a.err != nil {
		t.Error(a.err)
	}
	s.MustHaveRun(t, 1)
}

// Whoever waits is answered before its deadline, not by it.
func TestInProgressArrivesBeforeItsCallersDeadline(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	end := s.busy(t)
	ctx, cancel := context.WithTimeout(guardtest.Bounded(t), 2*time.Second)
	defer cancel()
	wantRefusal(t, s.callIn(keyed(ctx, "k"), order(1)).err, codes.Aborted, idemgrpc.ReasonInProgress, true)
	if ctx.Err() != nil {
		t.Error("it came after the deadline")
	}
	_ = end()
}

func TestWhileTheDaemonIsAwayAGuardedMethodIsClosed(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{Patience: time.Millisecond})
	s.Daemon.Fault(fakedaemon.Away)
	a := s.call(t, "k", order(1))
	wantRefusal(t, a.err, codes.Unavailable, idemgrpc.ReasonGuardUnavailable, true)
	if retryAfter(a.err) <= 0 {
		t.Error("it does not say when to come back")
	}
	s.MustHaveRun(t, 0)
	s.wantEndings(t, idemgrpc.Refused)
	s.Daemon.Fault(nil)
	if a := s.call(t, "k", order(1)); a.err != nil {
		t.Errorf("once it is back: %v", a.err)
	}
}

func TestAnOpenMethodRunsUnguardedOnlyWhileTheDaemonIsAwayAndIsToldOf(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Open: true}), idem.Options{Patience: time.Millisecond})
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		if _, guarded := idem.GrantFrom(ctx); guarded {
			return nil, status.Error(codes.NotFound, "no card")
		}
		return receipt(), nil
	}
	for _, fault := range []error{
		status.Error(codes.Unavailable, "connection refused"), status.Error(codes.DeadlineExceeded, "silence"), status.Error(codes.Unknown, "502"),
	} {
		s.Daemon.Fault(func(proto.Message) error { return fault })
		if a := s.call(t, "k", order(1)); a.err != nil || a.replayed() {
			t.Errorf("%v: answered %v", fault, a.err)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemgrpc.Unguarded || got[0].Err == nil {
			t.Errorf("%v: observed %+v", fault, got)
		}
	}
	// A decision is one, also where it is unwelcome.
	for code, want := range map[codes.Code]codes.Code{codes.PermissionDenied: codes.Internal, codes.InvalidArgument: codes.Internal, codes.ResourceExhausted: codes.Unavailable} {
		s.Ran.Store(0)
		s.Daemon.Fault(func(proto.Message) error { return status.Error(code, "no") })
		if a := s.call(t, "k", order(1)); status.Code(a.err) != want {
			t.Errorf("%v: answered %v", code, a.err)
		}
		s.MustHaveRun(t, 0)
	}
	s.Daemon.Fault(nil)
	s.Events.Take()
	for range 2 {
		if a := s.call(t, "k", order(1)); status.Code(a.err) != codes.NotFound {
			t.Errorf("once it is back: %v", a.err)
		}
	}
	s.wantEndings(t, idemgrpc.Executed, idemgrpc.Replayed)
}

func TestWhatTheDaemonRefusesIsAnsweredByItsKind(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{Patience: time.Millisecond})
	for _, c := range []struct {
		from   codes.Code
		said   idem.Reason
		code   codes.Code
		reason idemgrpc.Reason
		keep   bool
	}{
		{codes.FailedPrecondition, idem.KeyMayHaveExpired, codes.FailedPrecondition, idemgrpc.ReasonKeyMayHaveExpired, true},
		{codes.InvalidArgument, idem.KeyInvalid, codes.InvalidArgument, idemgrpc.ReasonKeyInvalid, false},
		{codes.InvalidArgument, idem.TimeInvalid, codes.Internal, idemgrpc.ReasonGuardRefused, true},
		{codes.InvalidArgument, idem.TenantInvalid, codes.Internal, idemgrpc.ReasonGuardRefused, true},
		{codes.DataLoss, idem.RecordUnreadable, codes.Internal, idemgrpc.ReasonGuardRefused, true},
		{codes.Unauthenticated, "", codes.Internal, idemgrpc.ReasonGuardRefused, true},
		{codes.Unavailable, idem.StoreUnavailable, codes.Unavailable, idemgrpc.ReasonGuardUnavailable, true},
	} {
		st, err := status.New(c.from, "said to the server").WithDetails(&errdetails.ErrorInfo{Domain: "idemd", Reason: string(c.said)})
		if err != nil {
			t.Fatal(err)
		}
		s.Daemon.Fault(func(proto.Message) error { return st.Err() })
		wantRefusal(t, s.call(t, "k", order(1)).err, c.code, c.reason, c.keep)
	}
	s.MustHaveRun(t, 0)
}

func TestACallWithTooLittleTimeLeftIsNotStarted(t *testing.T) {
	for _, isOpen := range []bool{false, true} { // the daemon is not away
		s := open(t, guarding(idemgrpc.Guard{MinRemaining: time.Hour, Open: isOpen}), idem.Options{})
		wantRefusal(t, s.call(t, "k", order(1)).err, codes.DeadlineExceeded, idemgrpc.ReasonNotStarted, true)
		s.MustHaveRun(t, 0)
		if s.Daemon.Calls() != 0 {
			t.Error("it was reserved")
		}
	}
}

// Whoever is further out in the chain, logging, say, sees that it was the caller.
func TestACallWhoseCallerHasGoneIsNotStartedAndSaysSo(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{}))
	if err != nil {
		t.Fatal(err)
	}
	gone, hangUp := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs(idemgrpc.KeyHeader, "k")))
	hangUp()
	_, err = guard(gone, order(1), &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) { return receipt(), nil })
	wantRefusal(t, err, codes.Canceled, idemgrpc.ReasonNotStarted, true)
	if s.Daemon.Calls() != 0 {
		t.Error("it was reserved")
	}
}

// A caller that leaves in the middle leaves its answer for the retry.
func TestAnOutcomeIsRecordedAfterItsCallerHasGone(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	ctx, hangUp := context.WithCancel(guardtest.Bounded(t))
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		hangUp()
		<-ctx.Done()
		return receipt(), nil
	}
	if a := s.callIn(keyed(ctx, "k"), order(1)); status.Code(a.err) != codes.Canceled {
		t.Errorf("answered %v", a.err)
	}
	if a := s.call(t, "k", order(1)); a.err != nil || !a.replayed() {
		t.Errorf("the retry is answered %v", a.err)
	}
	s.MustHaveRun(t, 1)
}

// A request that is too large is refused whole, never known by its beginning.
func TestARequestThatIsTooLargeIsRefusedBeforeAnythingIsStored(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, "k"))
	for size, want := range map[int]codes.Code{fingerprint.MaxBytes / 2: codes.OK, fingerprint.MaxBytes + 1: codes.ResourceExhausted} {
		big := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, size)}}
		before := s.Daemon.Records()
		_, err := guard(ctx, big, &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) { return receipt(), nil })
		if status.Code(err) != want || want != codes.OK && s.Daemon.Records() != before {
			t.Errorf("%d bytes: answered %v", size, err)
		}
	}
	// gRPC's own limit comes first.
	big := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 5<<20)}}
	if a := s.call(t, "k2", big); status.Code(a.err) != codes.ResourceExhausted {
		t.Errorf("answered %v", a.err)
	}
}

func TestARetryAfterTheRetentionIsSeenByTheTimeInItsKey(t *testing.T) {
	for hasTime, want := range map[bool]bool{true: true, false: false} {
		s := open(t, guarding(idemgrpc.Guard{KeyHasTime: hasTime}), idem.Options{})
		key := "01890a5d-ac96-774b-bcce-b302099a8057" // of 2023
		made, _ := idem.KeyTime(key)
		s.Daemon.Fault(func(m proto.Message) error {
			if r, is := m.(*idemdv1.ReserveRequest); is && r.GetFirstAttemptAt().AsTime().Equal(made) != want {
				t.Errorf("the first attempt was at %v", r.GetFirstAttemptAt().AsTime())
			}
			return nil
		})
		if a := s.call(t, key, order(1)); a.err != nil {
			t.Error(a.err)
		}
	}
}

func TestInAllDoubtAKeyIsKept(t *testing.T) {
	for err, keep := range map[error]bool{
		nil:                                     false,
		errors.New("no status"):                 true,
		status.Error(codes.Unavailable, ""):     true,
		status.Error(codes.Unauthenticated, ""): true, // perhaps of an interceptor before the guard
		fmt.Errorf("wrapped: %w", status.Error(codes.NotFound, "")): true,
	} {
		if idemgrpc.KeepKey(err) != keep || idemgrpc.ReasonOf(err) != "" {
			t.Errorf("%v: keep the key: %v", err, !keep)
		}
	}
}

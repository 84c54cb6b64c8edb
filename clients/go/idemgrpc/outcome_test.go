package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const (
	succeeded = idemdv1.State_STATE_SUCCEEDED
	final     = idemdv1.State_STATE_FAILED_FINAL
	retryable = idemdv1.State_STATE_FAILED_RETRYABLE
	unknown   = idemdv1.State_STATE_UNKNOWN
)

// failing is a handler that ends with an error.
func failing(err error) func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, err }
}

func TestWhatAStatusMeansIsTheTableOfTheDocs(t *testing.T) {
	refusals := []codes.Code{codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.OutOfRange,
		codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented}
	for _, mode := range []idem.Mode{idem.External, idem.Transactional} {
		s := open(t, guarding(idemgrpc.Guard{Mode: mode}), idem.Options{})
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			s.handle = failing(status.Error(code, "so it ended"))
			key := code.String()
			a := s.call(t, key, order(1))
			if st := status.Convert(a.err); st.Code() != code || st.Message() != "so it ended" {
				t.Errorf("%v: answered %v", code, a.err)
			}
			state, reason := unknown, idemgrpc.ReasonOutcomeUnknown
			for _, refused := range refusals {
				if code == refused {
					state, reason = final, ""
				}
			}
			if state == unknown && mode == idem.Transactional {
				state, reason = retryable, idemgrpc.ReasonNotExecuted
			}
			s.MustBeStored(t, key, state)
			wantRefusal(t, a.err, code, reason, true)
			if again := s.call(t, key, order(1)); state == unknown {
				wantRefusal(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonOutcomeUnknown, true)
			} else if status.Code(again.err) != code || again.replayed() != (state == final) {
				t.Errorf("%v: the retry is answered %v", code, again.err)
			}
		}
	}
}

func TestAHandlersOwnDeclarationCounts(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	away, declined := status.Error(codes.Unavailable, "bank away"), status.Error(codes.NotFound, "no card")
	for i, c := range []struct {
		err    error
		state  idemdv1.State
		reason idemgrpc.Reason
	}{
		{idem.NotExecuted(away), retryable, idemgrpc.ReasonNotExecuted},
		{idem.Final(away), final, ""},
		{idem.NotExecuted(declined), retryable, idemgrpc.ReasonNotExecuted},
		{idem.Unknown(declined), unknown, idemgrpc.ReasonOutcomeUnknown},
		{fmt.Errorf("charging: %w", idem.NotExecuted(away)), retryable, idemgrpc.ReasonNotExecuted},
		// Of several the most doubtful counts.
		{errors.Join(idem.NotExecuted(away), declined), unknown, idemgrpc.ReasonOutcomeUnknown},
		{errors.New("no status"), unknown, idemgrpc.ReasonOutcomeUnknown},
		// What another Do has ended with was declared about another operation.
		{&idem.FinalError{Err: idem.Final(errors.New("x"))}, unknown, idemgrpc.ReasonOutcomeUnknown},
		{idem.Final(&idem.UnresolvedError{}), final, ""},
	} {
		s.handle = failing(c.err)
		a := s.call(t, fmt.Sprint(i), order(1))
		s.MustBeStored(t, fmt.Sprint(i), c.state)
		wantRefusal(t, a.err, status.Code(a.err), c.reason, true)
		if text := status.Convert(a.err).Message(); i < 2 && text != "bank away" {
			t.Errorf("the message is %q", text)
		}
	}
}

func TestTheTableOfStatusesCanBeReplaced(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	c.Outcome = func(method string, s *status.Status) idemgrpc.Outcome {
		switch {
		case method != unary:
			t.Errorf("asked about %s", method)
		case s.Code() == codes.Unavailable:
			return idemgrpc.OutcomeNotExecuted
		case s.Message() == "for good":
			return idemgrpc.OutcomeFinal
		case s.Code() == codes.NotFound:
			return idemgrpc.OutcomeUnknown
		}
		return idemgrpc.OutcomeUndeclared // as the table has it
	}
	s := open(t, c, idem.Options{})
	for key, want := range map[string]struct {
		err   error
		state idemdv1.State
	}{
		"a": {status.Error(codes.Unavailable, ""), retryable},
		"b": {status.Error(codes.Internal, "for good"), final},
		"c": {status.Error(codes.NotFound, ""), unknown},
		"d": {status.Error(codes.InvalidArgument, ""), final},
	} {
		s.handle = failing(want.err)
		_ = s.call(t, key, order(1))
		s.MustBeStored(t, key, want.state)
	}
}

// A panic goes on through the guard; recovery may stand on either side of it.
func TestAPanicIsRecordedAsUnknownAndGoesOn(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{}))
	if err != nil {
		t.Fatal(err)
	}
	recovering := func(_ context.Context, _ any, _ *grpc.UnaryServerInfo, next func() (any, error)) (_ any, err error) {
		defer func() {
			if r := recover(); r != nil {
				err = status.Errorf(codes.Internal, "recovered: %v", r)
			}
		}()
		return next()
	}
	info := &grpc.UnaryServerInfo{FullMethod: unary}
	panics := func(context.Context, any) (any, error) { panic("in the middle") }
	for _, where := range []string{"outside", "inside"} {
		ctx := metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, where))
		var err error
		if where == "outside" {
			_, err = recovering(ctx, nil, info, func() (any, error) { return guard(ctx, order(1), info, panics) })
		} else {
			_, err = guard(ctx, order(1), info, func(ctx context.Context, r any) (any, error) {
				return recovering(ctx, r, info, func() (any, error) { return panics(ctx, r) })
			})
		}
		if st := status.Convert(err); st.Code() != codes.Internal || st.Message() != "recovered: in the middle" {
			t.Errorf("recovery %s: answered %v", where, err)
		}
		s.MustBeStored(t, where, unknown)
		wantRefusal(t, s.call(t, where, order(1)).err, codes.FailedPrecondition, idemgrpc.ReasonOutcomeUnknown, true)
	}
}

func TestAnAnswerThatCannotBeRecordedIsGivenToItsCallerAndToldOf(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{FinishTimeout: time.Millisecond})
	s.Daemon.Fault(func(m proto.Message) error {
		if _, asking := m.(*idemdv1.ReserveRequest); !asking {
			return status.Error(codes.PermissionDenied, "no")
		}
		return nil
	})
	for key, err := range map[string]error{"done": nil, "refused": status.Error(codes.NotFound, "no card"), "unknown": status.Error(codes.Internal, "?")} {
		s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return receipt(), err }
		a := s.call(t, key, order(1))
		if status.Code(a.err) != status.Code(err) || err == nil && !proto.Equal(a.response, receipt()) {
			t.Errorf("answered %v, %v", a.response, a.err)
		}
		if key == "refused" {
			wantRefusal(t, a.err, codes.NotFound, idemgrpc.ReasonNotRecorded, true)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemgrpc.Unrecorded || got[0].Err == nil {
			t.Errorf("observed %+v", got)
		}
		// The key is not free: nobody runs it again.
		s.MustBeStored(t, key, idemdv1.State_STATE_PROCESSING)
	}
}

func TestAResponseThatIsNotKeptIsAnsweredAsDone(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	for key, c := range map[string]struct {
		response *testpb.SimpleResponse
		first    codes.Code
	}{
		"too-large": {&testpb.SimpleResponse{Payload: &testpb.Payload{Body: make([]byte, idem.MaxBodyBytes)}}, codes.OK},
		"no-utf-8":  {&testpb.SimpleResponse{Username: "\xff"}, codes.Internal}, // gRPC can't send it either
	} {
		s.Ran.Store(0)
		s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return c.response, nil }
		if a := s.call(t, key, order(1)); status.Code(a.err) != c.first {
			t.Errorf("%s: answered %v", key, a.err)
		}
		again := s.call(t, key, order(1))
		wantRefusal(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept, false)
		if !again.replayed() {
			t.Errorf("%s: it is not marked as a replay", key)
		}
		s.MustHaveRun(t, 1)
		s.MustBeStored(t, key, succeeded)
	}
}

// Responses around the limit are kept whole, or not at all.
func TestAReplayIsNeverThePrefixOfAResponse(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	frame := proto.Size(&testpb.SimpleResponse{Username: strings.Repeat("x", idem.MaxBodyBytes)}) - idem.MaxBodyBytes
	for _, over := range []int{-1, 0, 1, 9 * idem.MaxBodyBytes} {
		s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Username: strings.Repeat("x", idem.MaxBodyBytes-frame+over)}, nil
		}
		key := fmt.Sprint("over", over)
		first, again := s.call(t, key, order(1)), s.call(t, key, order(1))
		if len(first.response.GetUsername()) != idem.MaxBodyBytes-frame+over {
			t.Errorf("%s: answered %d bytes, %v", key, len(first.response.GetUsername()), first.err)
		}
		if over > 0 {
			wantRefusal(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept, false)
		} else if !proto.Equal(first.response, again.response) {
			t.Errorf("%s: replayed %d bytes, %v", key, len(again.response.GetUsername()), again.err)
		}
	}
}

// What somebody has stored by Resolve is never taken for what it is not.
func TestAnOperatorsVerdictIsAnsweredWithWhatItHas(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	executed := idemgrpc.ResponseResult(receipt())
	declined := idemgrpc.StatusResult(status.New(codes.NotFound, "no card"))
	for i, c := range []struct {
		verdict idemdv1.Verdict
		result  *idem.Result
		code    codes.Code
		reason  idemgrpc.Reason
	}{
		{idemdv1.Verdict_VERDICT_SUCCEEDED, executed, codes.OK, ""},
		{idemdv1.Verdict_VERDICT_SUCCEEDED, &idem.Result{Status: 201, Body: []byte(`{"charge":1}`)}, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept},
		{idemdv1.Verdict_VERDICT_SUCCEEDED, nil, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept},
		{idemdv1.Verdict_VERDICT_FAILED_FINAL, declined, codes.NotFound, ""},
		{idemdv1.Verdict_VERDICT_FAILED_FINAL, nil, codes.FailedPrecondition, ""},
		{idemdv1.Verdict_VERDICT_FAILED_FINAL, &idem.Result{Status: 402}, codes.FailedPrecondition, ""},
	} {
		key := fmt.Sprint(i)
		s.handle = failing(status.Error(codes.Internal, "?"))
		_ = s.call(t, key, order(1))
		_, err := s.Client.Resolve(guardtest.Bounded(t), &idemdv1.ResolveRequest{
			Tenant: "acme", Key: key, ExpectedVersion: s.Daemon.Record("acme", "", key).GetVersion(), Verdict: c.verdict, Result: c.result, Reason: "seen",
		})
		if err != nil {
			t.Fatal(err)
		}
		if a := s.call(t, key, order(1)); status.Code(a.err) != c.code || idemgrpc.ReasonOf(a.err) != c.reason || !a.replayed() {
			t.Errorf("%d: answered %v, %v", i, a.response, a.err)
		}
	}
}

func TestAReconcilerSettlesWhatNobodyKnows(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Reconcile: func(_ context.Context, m proto.Message, u *idem.Unresolved) (idem.Verdict, error) {
		if m.(*testpb.SimpleRequest).GetResponseSize() != 1 || u.Key != "k" {
			t.Errorf("asked about %v, %+v", m, u)
		}
		return idem.WasExecuted(idemgrpc.ResponseResult(receipt())), nil
	}}), idem.Options{})
	s.handle = failing(status.Error(codes.Unavailable, "bank away"))
	_ = s.call(t, "k", order(1))
	for _, found := range []bool{true, false} { // then it is known
		_ = s.Events.Take()
		if a := s.call(t, "k", order(1)); a.err != nil || !proto.Equal(a.response, receipt()) || !a.replayed() {
			t.Errorf("answered %v, %v", a.response, a.err)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemgrpc.Replayed || got[0].Reconciled != found {
			t.Errorf("observed %+v", got)
		}
	}
	s.MustHaveRun(t, 1)
}

// Interceptors further out find the handler's own error in that of the guard.
func TestAHandlersErrorIsStillThereForOtherInterceptors(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{}))
	if err != nil {
		t.Fatal(err)
	}
	errCard := errors.New("no card")
	ctx := metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, "k"))
	_, err = guard(ctx, order(1), &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) { return nil, errCard })
	if !errors.Is(err, errCard) || status.Code(err) != codes.Unknown {
		t.Errorf("answered %v", err)
	}
}

func TestADecisionIDIsStoredAndToldWhereTheAnswerWasNotKept(t *testing.T) {
	for _, size := range []int{10, idem.MaxBodyBytes + 1} {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
		s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			g, _ := idem.GrantFrom(ctx)
			g.SetDecisionID("ch_1")
			return &testpb.SimpleResponse{Payload: &testpb.Payload{Body: make([]byte, size)}}, nil
		}
		if a := s.call(t, "k", order(1)); a.err != nil {
			t.Fatal(a.err)
		}
		found, err := s.Client.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "k"})
		if err != nil || found.GetReservation().GetResult().GetDecisionId() != "ch_1" {
			t.Errorf("Lookup shows %v, %v", found.GetReservation().GetResult().GetDecisionId(), err)
		}
		again := s.call(t, "k", order(1))
		if size == 10 {
			if again.err != nil || !again.replayed() {
				t.Errorf("the retry is answered %v", again.err)
			}
			continue
		}
		wantRefusal(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept, false)
		if info := infos(again.err); len(info) != 1 || info[0].GetMetadata()["decision_id"] != "ch_1" {
			t.Errorf("it tells %v", info)
		}
	}
}

// infos are what guards have said in an error.
func infos(err error) (all []*errdetails.ErrorInfo) {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == idemgrpc.Domain {
			all = append(all, info)
		}
	}
	return all
}

// The daemon in these tests says that an hour has passed since the outcome got open.
func TestNotExecutedIsBelievedAfterTheSettleTimeOnly(t *testing.T) {
	for settle, want := range map[time.Duration]codes.Code{time.Minute: codes.OK, 2 * time.Hour: codes.FailedPrecondition} {
		s := open(t, guarding(idemgrpc.Guard{
			Settle: settle, Wait: -1,
			Reconcile: func(context.Context, proto.Message, *idem.Unresolved) (idem.Verdict, error) {
				return idem.WasNotExecuted(), nil
			},
		}), idem.Options{})
		s.handle = failing(status.Error(codes.Unavailable, "bank away"))
		_ = s.call(t, "k", order(1))
		s.handle = nil
		_ = s.Events.Take()
		if a := s.call(t, "k", order(1)); status.Code(a.err) != want {
			t.Errorf("settle time %v: answered %v", settle, a.err)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Reconciled != (want == codes.OK) {
			t.Errorf("settle time %v: observed %+v", settle, got)
		}
	}
}

func TestWhereABodyIsKeptElsewhereItsReferenceIsTold(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Reconcile: func(context.Context, proto.Message, *idem.Unresolved) (idem.Verdict, error) {
		return idem.WasExecuted(&idem.Result{BodyOmitted: true, BodyRef: "blob-7"}), nil
	}}), idem.Options{})
	s.handle = failing(status.Error(codes.Unavailable, "bank away"))
	_ = s.call(t, "k", order(1))
	again := s.call(t, "k", order(1))
	wantRefusal(t, again.err, codes.FailedPrecondition, idemgrpc.ReasonAnswerNotKept, false)
	if info := infos(again.err); len(info) != 1 || info[0].GetMetadata()["body_ref"] != "blob-7" {
		t.Errorf("it tells %v", info)
	}
}

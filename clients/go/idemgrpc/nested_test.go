package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// What stands for itself in an error of several counts only where the others agree.
func TestDeclarationsInErrorsOfSeveralCountWhereTheyAgree(t *testing.T) {
	const final, unknown, retryable = idemdv1.State_STATE_FAILED_FINAL, idemdv1.State_STATE_UNKNOWN, idemdv1.State_STATE_FAILED_RETRYABLE
	noCard, plain := status.Error(codes.NotFound, "no card"), errors.New("so it ended")
	for i, c := range []struct {
		err                     error
		external, transactional idemdv1.State
	}{
		{errors.Join(idem.Final(noCard), idem.Final(plain)), final, final},
		{fmt.Errorf("%w, %w", idem.NotExecuted(plain), idem.NotExecuted(noCard)), retryable, retryable},
		{errors.Join(idem.Final(noCard), plain), unknown, retryable},
		{errors.Join(plain, idem.NotExecuted(plain)), unknown, retryable},
		{fmt.Errorf("%w, %w", idem.Final(plain), idem.NotExecuted(plain)), unknown, retryable},
		{fmt.Errorf("charge: %w", idem.Final(noCard)), final, final},
		{errors.Join(noCard, plain), final, final}, // nothing is declared: the table goes by the status
	} {
		for mode, want := range map[idem.Mode]idemdv1.State{idem.External: c.external, idem.Transactional: c.transactional} {
			s := open(t, guarding(idemgrpc.Guard{Mode: mode}), idem.Options{})
			s.handle = failing(c.err)
			_ = s.call(t, "k", order(1))
			if is := s.Daemon.Record("acme", "", "k"); is.GetState() != want {
				t.Errorf("%d, mode %d: stored is %v, want %v", i, mode, is.GetState(), want)
			}
		}
	}
}

// What a guarded operation within the handler ended with was said about that one.
func TestANestedOperationDeclaresNothingAboutTheCallAroundIt(t *testing.T) {
	noCard := status.Error(codes.NotFound, "no card")
	for _, declare := range []func(error) error{idem.Final, idem.NotExecuted, idem.Unknown} {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
		s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			inner := idem.Operation{Key: "inner", Fingerprint: idem.SHA256("test-v1", nil)}
			_, err := s.Client.Do(ctx, inner, func(context.Context, *idem.Grant) (*idem.Result, error) { return nil, declare(noCard) })
			return nil, fmt.Errorf("charge: %w", err)
		}
		wantRefusal(t, s.call(t, "k", order(1)).err, codes.NotFound, idemgrpc.ReasonOutcomeUnknown, true)
		s.MustBeStored(t, "k", idemdv1.State_STATE_UNKNOWN)
	}
	// Neither does a refusal of its Reserve, whose code is on the table.
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = failing(fmt.Errorf("charge: %w", &idem.Error{Code: codes.FailedPrecondition, Reason: idem.FingerprintMismatch}))
	wantRefusal(t, s.call(t, "k", order(1)).err, codes.FailedPrecondition, idemgrpc.ReasonOutcomeUnknown, true)
	// The handler's own word about it counts, whatever it wraps.
	s = open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = failing(idem.Final(&idem.NotExecutedError{Err: noCard}))
	_ = s.call(t, "k", order(1))
	s.MustBeStored(t, "k", idemdv1.State_STATE_FAILED_FINAL)
}

// So it is where a guarded handler is called in the same process, through its guard.
func TestAGuardedHandlerWithinAnotherDeclaresNothingAboutIt(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	inner, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{Namespace: "inner"}))
	if err != nil {
		t.Fatal(err)
	}
	noCard := errors.New("no card")
	s.handle = func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(idemgrpc.KeyHeader, "inner"))
		_, err := inner(ctx, r, &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) { return nil, idem.Final(noCard) })
		if !errors.Is(err, noCard) {
			t.Errorf("the handler's error is not in %v", err)
		}
		return nil, err
	}
	_ = s.call(t, "k", order(1))
	s.MustBeStored(t, "k", idemdv1.State_STATE_UNKNOWN)
	if is := s.Daemon.Record("acme", "inner", "inner"); is.GetState() != idemdv1.State_STATE_FAILED_FINAL {
		t.Errorf("the inner one is stored as %v", is)
	}
}

// A caller that took another guard's word for its own would drop a key whose outcome is
// open.
func TestWhatAnotherGuardSaidOfItsKeyIsNotSaidOfThisOne(t *testing.T) {
	other := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	_ = other.call(t, "k", order(2)) // the key is used up
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		_, err := other.api.UnaryCall(keyed(ctx, "k"), order(1))
		wantRefusal(t, err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
		return nil, err
	}
	a := s.call(t, "mine", order(1))
	wantRefusal(t, a.err, codes.FailedPrecondition, idemgrpc.ReasonOutcomeUnknown, true)
	if said := infos(a.err); len(said) != 1 {
		t.Errorf("it tells %v", said)
	}
	s.MustBeStored(t, "mine", idemdv1.State_STATE_UNKNOWN)
	// Declared, it is replayed without the other's hint.
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		_, err := other.api.UnaryCall(keyed(ctx, "k"), order(1))
		return nil, idem.Final(err)
	}
	for range 2 {
		if a := s.call(t, "mine-2", order(1)); status.Code(a.err) != codes.FailedPrecondition || len(infos(a.err)) != 0 {
			t.Errorf("answered %v, %v", a.err, infos(a.err))
		}
	}
}

// Without a key, or while its daemon is away: it has no grant of its own, and sees none.
func TestAHandlerThatRunsUnguardedWithinAnotherSeesNoGrant(t *testing.T) {
	nobody := fakedaemon.New()
	nobody.Fault(fakedaemon.Away)
	away := guardtest.Client(t, nobody, idem.Options{Patience: time.Nanosecond})
	for name, c := range map[string]struct {
		guard  idemgrpc.Guard
		client *idem.Client
		keys   metadata.MD
	}{
		"optional": {idemgrpc.Guard{Need: idemgrpc.Optional}, nil, nil},
		"open":     {idemgrpc.Guard{Open: true}, away, metadata.Pairs(idemgrpc.KeyHeader, "inner")},
	} {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
		if c.client == nil {
			c.client = s.Client
		}
		inner, err := idemgrpc.UnaryServerInterceptor(c.client, guarding(c.guard))
		if err != nil {
			t.Fatal(err)
		}
		ran := false
		s.handle = func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			ctx = metadata.NewIncomingContext(ctx, c.keys)
			_, err := inner(ctx, r, &grpc.UnaryServerInfo{FullMethod: unary}, func(ctx context.Context, _ any) (any, error) {
				ran = true
				if g, is := idem.GrantFrom(ctx); is {
					t.Errorf("%s: it has the grant %+v", name, g)
				}
				return receipt(), nil
			})
			return receipt(), err
		}
		if a := s.call(t, "k", order(1)); a.err != nil || !ran {
			t.Errorf("%s: answered %v, the inner one ran: %v", name, a.err, ran)
		}
	}
}

// A key in a field is no less the caller's than one in the metadata.
func TestAKeyInAFieldNeverLeaksIntoANestedCall(t *testing.T) {
	w := &wire{}
	bank := caller(t, w)
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, idemgrpc.Config{Methods: map[string]idemgrpc.Guard{check: {KeyField: "service"}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = guard(guardtest.Bounded(t), &grpc_health_v1.HealthCheckRequest{Service: "of-the-caller"}, &grpc.UnaryServerInfo{FullMethod: check},
		func(ctx context.Context, _ any) (any, error) {
			_, err := bank.UnaryCall(keyed(ctx, "of-the-caller"), order(1))
			return &grpc_health_v1.HealthCheckResponse{}, err
		})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.arrived(t); len(got) != 1 || got[0] == "of-the-caller" || got[0] == "" {
		t.Errorf("arrived %q", got)
	}
}

// It has named the call around, which was made in the same process, and would name two
// others in it alike.
func TestAKeyOfTheContextAroundAHandlerReachesNoCallOfTheHandlers(t *testing.T) {
	w := &wire{}
	bank := caller(t, w)
	nobody := fakedaemon.New()
	nobody.Fault(fakedaemon.Away)
	away := guardtest.Client(t, nobody, idem.Options{Patience: time.Nanosecond})
	derived := idem.DeriveKey("acme", "default", "k", "inner")
	for name, c := range map[string]struct {
		guard  idemgrpc.Guard
		client *idem.Client // nil = that of the call around
		with   func(context.Context) context.Context
		key    string // of the call, in its metadata
	}{
		"guarded":  {with: func(ctx context.Context) context.Context { return idemgrpc.WithKey(ctx, "the-call's") }, key: "the-call's"},
		"derived":  {with: func(ctx context.Context) context.Context { return idemgrpc.WithDerivedKey(ctx, "inner") }, key: derived},
		"optional": {guard: idemgrpc.Guard{Need: idemgrpc.Optional}, with: func(ctx context.Context) context.Context { return idemgrpc.WithKey(ctx, "the-call's") }},
		"open": {
			guard: idemgrpc.Guard{Open: true}, client: away, key: "the-call's",
			with: func(ctx context.Context) context.Context { return idemgrpc.WithKey(ctx, "the-call's") },
		},
	} {
		s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
		if c.client == nil {
			c.client = s.Client
		}
		inner, err := idemgrpc.UnaryServerInterceptor(c.client, guarding(c.guard))
		if err != nil {
			t.Fatal(err)
		}
		s.handle = func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			ctx = c.with(metadata.NewIncomingContext(ctx, metadata.MD{}))
			if c.key != "" {
				ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(idemgrpc.KeyHeader, c.key))
			}
			_, err := inner(ctx, r, &grpc.UnaryServerInfo{FullMethod: unary}, func(ctx context.Context, _ any) (any, error) {
				_, one := bank.UnaryCall(ctx, order(1))
				_, other := bank.UnaryCall(ctx, order(1))
				_, unchosen := bank.EmptyCall(ctx, &testpb.Empty{})
				_, own := bank.UnaryCall(idemgrpc.WithKey(ctx, "own"), order(1))
				if md, _ := metadata.FromOutgoingContext(ctx); md.Get(idemgrpc.KeyHeader) != nil { // a client without an interceptor
					t.Errorf("%s: on the way out is %v", name, md)
				}
				return receipt(), errors.Join(one, other, unchosen, own)
			})
			return receipt(), err
		}
		if a := s.call(t, "k", order(1)); a.err != nil {
			t.Errorf("%s: answered %v", name, a.err)
		}
		got := w.arrived(t)
		if len(got) != 4 || got[0] == got[1] || got[0] == "" || got[1] == "" || got[2] != "" || got[3] != "own" {
			t.Errorf("%s: the handler's calls have the keys %q", name, got)
			continue
		}
		for _, key := range got[:2] {
			if key == "the-call's" || key == derived {
				t.Errorf("%s: the handler's calls have the keys %q", name, got)
			}
		}
	}
}

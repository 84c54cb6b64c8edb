package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestAnAnswerIsReplayedAsItWas(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	c.Headers = []string{"Location", "x-parts-bin"}
	s := open(t, c, idem.Options{})
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		err := errors.Join(
			grpc.SetHeader(ctx, metadata.Pairs("location", "/orders/1", "x-secret", "no")),
			grpc.SendHeader(ctx, metadata.Pairs("location", "/orders/2")),
			grpc.SetTrailer(ctx, metadata.Pairs("x-parts-bin", "\x00\xff", "x-secret", "no")))
		return &testpb.SimpleResponse{Username: "receipt", Payload: &testpb.Payload{Body: []byte{0, 1, 2}}}, err
	}
	first, again := s.call(t, "k", order(1)), s.call(t, "k", order(1))
	s.MustHaveRun(t, 1)
	if first.err != nil || again.err != nil || !proto.Equal(first.response, again.response) {
		t.Fatalf("answered %v, %v, then %v, %v", first.response, first.err, again.response, again.err)
	}
	if first.replayed() || !again.replayed() {
		t.Error("the mark of a replay is not where it belongs")
	}
	if got := again.header.Get("location"); strings.Join(got, " ") != "/orders/1 /orders/2" {
		t.Errorf("replayed location %q", got)
	}
	if got := again.trailer.Get("x-parts-bin"); len(got) != 1 || got[0] != "\x00\xff" {
		t.Errorf("replayed trailer %q", got)
	}
	if again.header.Get("x-secret") != nil || again.trailer.Get("x-secret") != nil {
		t.Error("what is not on the list was replayed")
	}
	// The handler has sent the headers of the first answer before its end.
	told := append(first.trailer.Get(idemgrpc.ExpiresHeader), again.header.Get(idemgrpc.ExpiresHeader)...)
	for _, until := range told {
		if at, err := time.Parse(time.RFC3339Nano, until); err != nil || time.Until(at) < 6*24*time.Hour {
			t.Errorf("remembered until %q", until)
		}
	}
	if len(told) != 2 || told[0] != told[1] {
		t.Errorf("the answers tell different times: %q", told)
	}
	if kept := s.Daemon.Record("acme", "", "k").GetResult().GetHeaders(); len(kept) != 3 || strings.Contains(fmt.Sprint(kept), "x-secret") {
		t.Errorf("stored is %v", kept)
	}
	s.wantEndings(t, idemgrpc.Executed, idemgrpc.Replayed)
}

func TestARefusalIsReplayedWithItsDetails(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		st, err := status.New(codes.FailedPrecondition, "card declined").WithDetails(&errdetails.ErrorInfo{Domain: "bank", Reason: "DECLINED"})
		return nil, errors.Join(err, st.Err())
	}
	first, again := s.call(t, "k", order(1)), s.call(t, "k", order(1))
	s.MustHaveRun(t, 1)
	if !proto.Equal(status.Convert(first.err).Proto(), status.Convert(again.err).Proto()) || len(status.Convert(again.err).Details()) != 1 {
		t.Errorf("answered %v, then %v", first.err, again.err)
	}
	if first.replayed() || !again.replayed() || again.header.Get(idemgrpc.ExpiresHeader) == nil || first.header.Get(idemgrpc.ExpiresHeader) == nil {
		t.Errorf("headers %v, then %v", first.header, again.header)
	}
	s.MustBeStored(t, "k", idemdv1.State_STATE_FAILED_FINAL)
}

// Whatever the handler does to its request, what was asked is what counts.
func TestWhatAHandlerChangesInItsRequestIsNotWhatIsRecorded(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		proto.Reset(r)
		return receipt(), nil
	}
	for range 3 {
		if a := s.call(t, "k", order(1)); a.err != nil {
			t.Fatal(a.err)
		}
	}
	s.MustHaveRun(t, 1)
	wantRefusal(t, s.call(t, "k", order(2)).err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
}

// Both take and give the same messages: nothing but the method tells them apart.
func TestOneKeyOnTwoMethodsIsRefused(t *testing.T) {
	const other = testpb.TestService_UnimplementedCall_FullMethodName
	s := open(t, idemgrpc.Config{Methods: map[string]idemgrpc.Guard{empty: {}, other: {}}}, idem.Options{})
	ctx := keyed(guardtest.Bounded(t), "k")
	if _, err := s.api.EmptyCall(ctx, &testpb.Empty{}); err != nil {
		t.Fatal(err)
	}
	_, err := s.api.UnimplementedCall(ctx, &testpb.Empty{})
	wantRefusal(t, err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
	s.MustHaveRun(t, 1)
}

// The name of the operation is the method's, or the one that the configuration gives it:
// moved code changes nothing.
func TestAnOperationKeepsItsName(t *testing.T) {
	named := open(t, guarding(idemgrpc.Guard{Fingerprint: fingerprint.Rules{Operation: unary}}), idem.Options{})
	byDefault := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	other := open(t, guarding(idemgrpc.Guard{Fingerprint: fingerprint.Rules{Operation: "/shop.v0/Old"}}), idem.Options{})
	var digests []string
	for _, s := range []*shop{named, byDefault, other} {
		if a := s.call(t, "k", order(1)); a.err != nil {
			t.Fatal(a.err)
		}
		digests = append(digests, string(s.Daemon.Record("acme", "", "k").GetFingerprint().GetDigest()))
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Error("the operation's name is not the method's, or counts for nothing")
	}
}

func TestOneConfigurationBuildsManyInterceptorsAndIsReadOnce(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	c.Headers = []string{"Location"}
	s := open(t, c, idem.Options{})
	second, err := idemgrpc.UnaryServerInterceptor(s.Client, c)
	if err != nil || s.Daemon.Calls() != 0 || c.Headers[0] != "Location" {
		t.Fatalf("building called the daemon or changed its configuration: %v", err)
	}
	delete(c.Methods, unary)
	if a := s.call(t, "k", order(1)); a.err != nil {
		t.Fatal(a.err)
	}
	ctx := metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, "k"))
	response, err := second(ctx, order(1), &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if err != nil || !proto.Equal(response.(proto.Message), receipt()) || s.Daemon.Records() != 1 {
		t.Errorf("answered %v, %v; %d records", response, err, s.Daemon.Records())
	}
}

func TestOneInterceptorServesManyGoroutines(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	s.handle = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return &testpb.SimpleResponse{Username: strings.Repeat("x", int(r.GetResponseSize()))}, nil
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			n := int32(i / 2) // two of each
			a := s.call(t, strings.Repeat("k", int(n)+1), order(n))
			if a.err != nil || len(a.response.GetUsername()) != int(n) {
				t.Errorf("%d: answered %v, %v", n, a.response, a.err)
			}
		})
	}
	all.Wait()
	s.MustHaveRun(t, 32)
}

func TestARequestThatIsRefusedByValidateTakesNoKey(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Validate: func(_ context.Context, m proto.Message) error {
		if m.(*testpb.SimpleRequest).GetResponseSize() < 0 {
			return status.Error(codes.InvalidArgument, "less than nothing")
		}
		return nil
	}}), idem.Options{})
	if a := s.call(t, "k", order(-1)); status.Code(a.err) != codes.InvalidArgument || s.Daemon.Calls() != 0 {
		t.Fatalf("answered %v, with %d calls of the daemon", a.err, s.Daemon.Calls())
	}
	if a := s.call(t, "k", order(1)); a.err != nil || a.replayed() {
		t.Errorf("the corrected request is answered %v", a.err)
	}
	s.wantEndings(t, idemgrpc.Refused, idemgrpc.Executed)
}

func TestTenantsAndSubjectsShareNoAnswer(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	from := func(name string) func(context.Context, proto.Message) (string, error) {
		return func(ctx context.Context, _ proto.Message) (string, error) {
			if found := metadata.ValueFromIncomingContext(ctx, name); len(found) == 1 {
				return found[0], nil
			}
			return "", status.Error(codes.Unauthenticated, "who are you?")
		}
	}
	c.Tenant, c.Subject = from("tenant"), from("user")
	s := open(t, c, idem.Options{})
	as := func(tenant, user string) context.Context {
		return metadata.AppendToOutgoingContext(keyed(guardtest.Bounded(t), "k"), "tenant", tenant, "user", user)
	}
	for _, tenant := range []string{"acme", "globex"} {
		if a := s.callIn(as(tenant, "ann"), order(1)); a.err != nil || a.replayed() {
			t.Errorf("%s: answered %v", tenant, a.err)
		}
	}
	wantRefusal(t, s.callIn(as("acme", "bob"), order(1)).err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
	if a := s.callIn(as("acme", "ann"), order(1)); !a.replayed() {
		t.Errorf("answered %v", a.err)
	}
	if a := s.callIn(keyed(guardtest.Bounded(t), "k2"), order(1)); status.Code(a.err) != codes.Unauthenticated {
		t.Errorf("a stranger is answered %v", a.err)
	}
	s.MustHaveRun(t, 2)
}

func TestOnlyWhatCountsIsCompared(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Fingerprint: fingerprint.Rules{Exclude: []string{"payload"}}}), idem.Options{})
	for i := range 2 {
		r := order(1)
		r.Payload = &testpb.Payload{Body: []byte{byte(i)}}
		if a := s.call(t, "k", r); a.err != nil || a.replayed() != (i > 0) {
			t.Errorf("answered %v", a.err)
		}
	}
	wantRefusal(t, s.call(t, "k", order(2)).err, codes.FailedPrecondition, idemgrpc.ReasonFingerprintMismatch, false)
}

func TestAHandlerHasItsGrant(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{Need: idemgrpc.Optional, PolicyVersion: "tariff-7"}), idem.Options{})
	s.handle = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		g, guarded := idem.GrantFrom(ctx)
		if !guarded {
			return &testpb.SimpleResponse{}, nil
		}
		if err := g.Checkpoint(ctx, []byte("half")); err != nil {
			return nil, err
		}
		return &testpb.SimpleResponse{Username: g.DeriveKey("charge"), Hostname: g.PolicyVersion, OauthScope: g.Key}, nil
	}
	a := s.call(t, "k", order(1))
	want := idem.DeriveKey("acme", "default", "k", "charge")
	if a.err != nil || a.response.GetUsername() != want || a.response.GetHostname() != "tariff-7" || a.response.GetOauthScope() != "k" {
		t.Errorf("answered %v, %v", a.response, a.err)
	}
	if is := s.Daemon.Record("acme", "", "k"); string(is.GetCheckpoint()) != "half" {
		t.Errorf("stored is %v", is)
	}
	if a := s.callIn(guardtest.Bounded(t), order(1)); a.err != nil || a.response.GetUsername() != "" {
		t.Errorf("without a guard: %v, %v", a.response, a.err)
	}
}

func TestAStreamPasses(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	c.Methods[streams] = idemgrpc.Guard{Need: idemgrpc.Off}
	s := open(t, c, idem.Options{})
	stream, err := s.api.StreamingOutputCall(keyed(guardtest.Bounded(t), "k"), &testpb.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); err != nil || s.Ran.Load() != 1 {
		t.Errorf("answered %v", err)
	}
}

func TestACallerWithoutATenantIsRefused(t *testing.T) {
	c := guarding(idemgrpc.Guard{})
	c.Tenant = func(context.Context, proto.Message) (string, error) { return "", nil }
	s := open(t, c, idem.Options{})
	if a := s.call(t, "k", order(1)); status.Code(a.err) != codes.PermissionDenied || s.Ran.Load() != 0 || s.Daemon.Records() != 0 {
		t.Errorf("answered %v, %v", a.response, a.err)
	}
}

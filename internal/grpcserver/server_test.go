package grpcserver

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// fixture is a server on the reference store, and clients of it.
type fixture struct {
	idemdv1.IdempotencyServiceClient
	operator idemdv1.OperatorServiceClient
	harness  *storetest.Harness
	log      *logBuffer
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func serve(t *testing.T, wrap func(store.Store) store.Store) *fixture {
	t.Helper()
	f := &fixture{harness: storetest.OpenMem(t), log: &logBuffer{}}
	backing := f.harness.Store
	if wrap != nil {
		backing = wrap(backing)
	}
	e, err := engine.New(engine.Options{Store: backing, Jitter: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	server := New(Options{
		Engine: e, Health: health.NewServer(), Metrics: grpcprom.NewServerMetrics(),
		Logger: slog.New(slog.NewJSONHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		e.Close()
	})
	f.IdempotencyServiceClient, f.operator = idemdv1.NewIdempotencyServiceClient(conn), idemdv1.NewOperatorServiceClient(conn)
	return f
}

func token(n byte) []byte { return bytes.Repeat([]byte{n}, 16) }

func reserveRequest(key string, caller byte) *idemdv1.ReserveRequest {
	return &idemdv1.ReserveRequest{
		Tenant: "acme", Key: key, OwnerToken: token(caller), Owner: "pod",
		Fingerprint: &idemdv1.Fingerprint{Scheme: "test-v1", Digest: bytes.Repeat([]byte{1}, 32)},
	}
}

// explained is a status's reason, field and retry hint.
func explained(t *testing.T, err error) (code codes.Code, reason string, metadata map[string]string, retry time.Duration) {
	t.Helper()
	st := status.Convert(err)
	for _, detail := range st.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != "idemd" {
				t.Errorf("the domain is %q", d.GetDomain())
			}
			reason, metadata = d.GetReason(), d.GetMetadata()
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		}
	}
	return st.Code(), reason, metadata, retry
}

func wantReason(t *testing.T, err error, code codes.Code, reason reservation.Reason) {
	t.Helper()
	if gotCode, got, _, _ := explained(t, err); got != string(reason) || gotCode != code {
		t.Errorf("got %v %s (%v), want %v %s", gotCode, got, err, code, reason)
	}
}

func TestEveryReasonHasItsDocumentedCode(t *testing.T) {
	for code, reasons := range map[codes.Code][]reservation.Reason{
		codes.InvalidArgument: {
			"TENANT_INVALID", "NAMESPACE_INVALID", "KEY_INVALID", "FINGERPRINT_INVALID", "TOKEN_INVALID", "DURATION_OUT_OF_RANGE",
			"RESULT_INVALID", "CHECKPOINT_INVALID", "LABEL_INVALID", "TIME_INVALID", "ENUM_INVALID", "BATCH_INVALID", "PAGE_INVALID",
		},
		codes.FailedPrecondition: {
			"FINGERPRINT_MISMATCH", "STALE_TOKEN", "ALREADY_FINISHED", "TOKEN_SPENT", "KEY_MAY_HAVE_EXPIRED", "NOT_UNRESOLVED",
			"LEASE_CAP_REACHED", "ATTEMPTS_EXHAUSTED", "NOT_FINISHED",
		},
		codes.Aborted:           {"VERSION_CONFLICT"},
		codes.NotFound:          {"RESERVATION_NOT_FOUND"},
		codes.ResourceExhausted: {"RESULT_TOO_LARGE"},
		codes.Unavailable:       {"STORE_UNAVAILABLE", "DRAINING", "OVERLOADED"},
		codes.DataLoss:          {"RECORD_UNREADABLE"},
		codes.Internal:          {"a reason nobody has mapped"},
	} {
		for _, reason := range reasons {
			if got := codeOf(reason); got != code {
				t.Errorf("%s is %v, want %v", reason, got, code)
			}
		}
	}
}

func TestEnumsAreNumberedAlikeOnBothSides(t *testing.T) {
	for number := range 6 {
		state := reservation.State(number)
		want := "STATE_" + state.String()
		if number == 0 {
			want = "STATE_UNSPECIFIED"
		}
		if got := protoState(state).String(); got != want {
			t.Errorf("%v is sent as %v", state, got)
		}
		kind := reservation.HistoryKind(number)
		if got := idemdv1.HistoryKind(number).String(); number > 0 && got != "HISTORY_KIND_"+kind.String() {
			t.Errorf("%v is sent as %v", kind, got)
		}
	}
	for number := 1; number <= 4; number++ {
		if got := idemdv1.OutcomeKind(number).String(); got != "OUTCOME_KIND_"+reservation.OutcomeKind(number).String() {
			t.Errorf("%v is sent as %v", reservation.OutcomeKind(number), got)
		}
	}
	for number := 1; number <= 3; number++ {
		if got := idemdv1.Verdict(number).String(); got != "VERDICT_"+reservation.Verdict(number).String() {
			t.Errorf("%v is sent as %v", reservation.Verdict(number), got)
		}
	}
	for number := 1; number <= 2; number++ {
		if got := idemdv1.OperatorAct(number).String(); got != "OPERATOR_ACT_"+reservation.Act(number).String() {
			t.Errorf("%v is sent as %v", reservation.Act(number), got)
		}
		if got := idemdv1.LapsePolicy(number).String(); got != "LAPSE_POLICY_"+reservation.LapsePolicy(number).String() {
			t.Errorf("%v is sent as %v", reservation.LapsePolicy(number), got)
		}
	}
}

func TestAResultIsReplayedByteForByteOverTheWire(t *testing.T) {
	f := serve(t, nil)
	result := &idemdv1.Result{
		Status: 201, ContentType: "application/json", Body: []byte("\x00\xff{\"b\":1.0,\"a\":1e2,\"a\":3}"), DecisionId: "ch_1",
		Headers: []*idemdv1.Header{{Name: "Location", Value: []byte("/1")}, {Name: "x-bin", Value: []byte{0, 0xff}}, {Name: "Location", Value: nil}},
	}
	owned, err := f.Reserve(t.Context(), reserveRequest("k", 1))
	if err != nil || owned.GetOwned().GetAttempt() != 1 || owned.GetOwned().GetLeaseRemaining().AsDuration() != reservation.DefaultLease {
		t.Fatalf("%v %v", owned, err)
	}
	if _, err := f.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: "k", OwnerToken: token(1), Result: result}); err != nil {
		t.Fatal(err)
	}
	replayed, err := f.Reserve(t.Context(), reserveRequest("k", 2))
	if err != nil || !proto.Equal(replayed.GetReplay().GetResult(), result) {
		t.Errorf("replayed %v, want %v (%v)", replayed, result, err)
	}
	looked, err := f.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "k"})
	if err != nil || looked.GetReservation().GetNamespace() != "default" || !proto.Equal(looked.GetReservation().GetResult(), result) {
		t.Errorf("Lookup shows %v (%v)", looked, err)
	}
}

func TestEveryDecisionAndReasonIsSeenOverTheWire(t *testing.T) {
	f := serve(t, nil)
	ctx := t.Context()
	const tenant, key = "acme", "k"
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lookup := func() *idemdv1.Reservation {
		t.Helper()
		response, err := f.Lookup(ctx, &idemdv1.LookupRequest{Tenant: tenant, Key: key})
		must(response, err)
		return response.GetReservation()
	}
	must(f.Reserve(ctx, reserveRequest(key, 1)))
	busy, err := f.Reserve(ctx, reserveRequest(key, 2))
	if err != nil || busy.GetInProgress().GetRetryAfter().AsDuration() != time.Second {
		t.Errorf("got %v %v", busy, err)
	}
	other := reserveRequest(key, 2)
	other.Fingerprint.Digest[0] = 9
	_, err = f.Reserve(ctx, other)
	wantReason(t, err, codes.FailedPrecondition, reservation.FingerprintMismatch)
	_, err = f.Complete(ctx, &idemdv1.CompleteRequest{Tenant: tenant, Key: key, OwnerToken: token(9)})
	wantReason(t, err, codes.FailedPrecondition, reservation.StaleToken)
	_, err = f.operator.Resolve(ctx, &idemdv1.ResolveRequest{Tenant: tenant, Key: key, ExpectedVersion: lookup().GetVersion(), Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "r"})
	wantReason(t, err, codes.FailedPrecondition, reservation.NotUnresolved)

	f.harness.Advance(reservation.DefaultLease)
	unresolved, err := f.Reserve(ctx, reserveRequest(key, 2))
	if err != nil || unresolved.GetUnresolved().GetVersion() == 0 || unresolved.GetUnresolved().GetSince() == nil {
		t.Errorf("got %v %v", unresolved, err)
	}
	if state := lookup().GetState(); state != idemdv1.State_STATE_UNKNOWN {
		t.Errorf("Lookup shows %v", state)
	}
	_, err = f.operator.Resolve(ctx, &idemdv1.ResolveRequest{Tenant: tenant, Key: key, ExpectedVersion: 5, Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "r"})
	wantReason(t, err, codes.Aborted, reservation.VersionConflict)
	if _, _, metadata, _ := explained(t, err); metadata["version"] == "" || metadata["field"] != "expected_version" {
		t.Errorf("the metadata is %v", metadata)
	}
	must(f.operator.Resolve(ctx, &idemdv1.ResolveRequest{
		Tenant: tenant, Key: key, ExpectedVersion: unresolved.GetUnresolved().GetVersion(),
		Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "asked the bank", Evidence: "line 4",
	}))
	_, err = f.Reserve(ctx, reserveRequest(key, 1))
	wantReason(t, err, codes.FailedPrecondition, reservation.TokenSpent)
	must(f.Reserve(ctx, reserveRequest(key, 2)))
	extended, err := f.Extend(ctx, &idemdv1.ExtendRequest{Tenant: tenant, Key: key, OwnerToken: token(2), Lease: durationpb.New(time.Hour)})
	if err != nil || extended.GetLeaseRemaining().AsDuration() != time.Hour {
		t.Errorf("got %v %v", extended, err)
	}
	f.harness.Advance(reservation.DefaultLeaseCap)
	_, err = f.Extend(ctx, &idemdv1.ExtendRequest{Tenant: tenant, Key: key, OwnerToken: token(2)})
	wantReason(t, err, codes.FailedPrecondition, reservation.LeaseCapReached)
	must(f.Fail(ctx, &idemdv1.FailRequest{Tenant: tenant, Key: key, OwnerToken: token(2), Kind: idemdv1.FailureKind_FAILURE_KIND_FINAL}))
	_, err = f.Extend(ctx, &idemdv1.ExtendRequest{Tenant: tenant, Key: key, OwnerToken: token(2)})
	wantReason(t, err, codes.FailedPrecondition, reservation.AlreadyFinished)
	history := lookup().GetHistory()
	if len(history) != 2 || history[0].GetKind() != idemdv1.HistoryKind_HISTORY_KIND_STALE_OUTCOME || history[1].GetActor() == "" || history[1].GetEvidence() != "line 4" {
		t.Errorf("the history is %v", history)
	}

	f.harness.Advance(reservation.DefaultRetention)
	_, err = f.Lookup(ctx, &idemdv1.LookupRequest{Tenant: tenant, Key: key})
	wantReason(t, err, codes.NotFound, reservation.NotFound)
	late := reserveRequest(key, 3)
	late.FirstAttemptAt = timestamppb.New(storetest.Start.Time())
	_, err = f.Reserve(ctx, late)
	wantReason(t, err, codes.FailedPrecondition, reservation.KeyMayHaveExpired)
}

func TestBadInputOverTheWireGetsItsReasonAndStoresNothing(t *testing.T) {
	f := serve(t, nil)
	reserve := func(edit func(*idemdv1.ReserveRequest)) error {
		r := reserveRequest("bad", 1)
		edit(r)
		_, err := f.Reserve(t.Context(), r)
		return err
	}
	lease := func(d *durationpb.Duration) error {
		return reserve(func(r *idemdv1.ReserveRequest) { r.Lease = d })
	}
	fail := func(edit func(*idemdv1.FailRequest)) error {
		r := &idemdv1.FailRequest{Tenant: "acme", Key: "bad", OwnerToken: token(1), Kind: idemdv1.FailureKind_FAILURE_KIND_FINAL}
		edit(r)
		_, err := f.Fail(t.Context(), r)
		return err
	}
	_, emptyEverything := f.Reserve(t.Context(), &idemdv1.ReserveRequest{})
	_, longWait := f.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "bad", Wait: durationpb.New(51 * time.Second)})
	_, bigBody := f.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: "bad", OwnerToken: token(1), Result: &idemdv1.Result{Body: make([]byte, 5<<20)}})
	_, noVerdict := f.operator.Resolve(t.Context(), &idemdv1.ResolveRequest{Tenant: "acme", Key: "bad", Verdict: 257, Reason: "r"})
	for name, c := range map[string]struct {
		err    error
		code   codes.Code
		reason reservation.Reason
	}{
		"empty everything":   {emptyEverything, codes.InvalidArgument, reservation.TenantInvalid},
		"key with 0x00":      {reserve(func(r *idemdv1.ReserveRequest) { r.Key = "a\x00b" }), codes.InvalidArgument, reservation.KeyInvalid},
		"key of 256":         {reserve(func(r *idemdv1.ReserveRequest) { r.Key = strings.Repeat("k", 256) }), codes.InvalidArgument, reservation.KeyInvalid},
		"key of spaces":      {reserve(func(r *idemdv1.ReserveRequest) { r.Key = "  " }), codes.InvalidArgument, reservation.KeyInvalid},
		"token of 0xff":      {reserve(func(r *idemdv1.ReserveRequest) { r.OwnerToken = []byte{0xff} }), codes.InvalidArgument, reservation.TokenInvalid},
		"no fingerprint":     {reserve(func(r *idemdv1.ReserveRequest) { r.Fingerprint = nil }), codes.InvalidArgument, reservation.FingerprintInvalid},
		"lease of 0":         {lease(durationpb.New(0)), codes.InvalidArgument, reservation.DurationOutOfRange},
		"negative lease":     {lease(durationpb.New(-time.Second)), codes.InvalidArgument, reservation.DurationOutOfRange},
		"lease of 1 ns":      {lease(durationpb.New(1)), codes.InvalidArgument, reservation.DurationOutOfRange},
		"lease of 300 years": {lease(&durationpb.Duration{Seconds: 300 * 365 * 86400}), codes.InvalidArgument, reservation.DurationOutOfRange},
		"malformed lease":    {lease(&durationpb.Duration{Seconds: 1, Nanos: -5}), codes.InvalidArgument, reservation.DurationOutOfRange},
		"lease beyond int64": {lease(&durationpb.Duration{Seconds: math.MaxInt64}), codes.InvalidArgument, reservation.DurationOutOfRange},
		"retention of 0":     {reserve(func(r *idemdv1.ReserveRequest) { r.Retention = durationpb.New(0) }), codes.InvalidArgument, reservation.DurationOutOfRange},
		"negative wait":      {reserve(func(r *idemdv1.ReserveRequest) { r.Wait = durationpb.New(-1) }), codes.InvalidArgument, reservation.DurationOutOfRange},
		"wait of 51 s":       {longWait, codes.InvalidArgument, reservation.DurationOutOfRange},
		"unknown lapse":      {reserve(func(r *idemdv1.ReserveRequest) { r.OnLapse = 258 }), codes.InvalidArgument, reservation.EnumInvalid},
		"year 10000":         {reserve(func(r *idemdv1.ReserveRequest) { r.FirstAttemptAt = &timestamppb.Timestamp{Seconds: 1 << 40} }), codes.InvalidArgument, reservation.TimeInvalid},
		"before 1970":        {reserve(func(r *idemdv1.ReserveRequest) { r.FirstAttemptAt = &timestamppb.Timestamp{Seconds: -5} }), codes.InvalidArgument, reservation.TimeInvalid},
		"first attempt ahead": {reserve(func(r *idemdv1.ReserveRequest) {
			r.FirstAttemptAt = timestamppb.New(storetest.Start.Add(6 * time.Minute).Time())
		}), codes.InvalidArgument, reservation.TimeInvalid},
		"owner with newline":  {reserve(func(r *idemdv1.ReserveRequest) { r.Owner = "a\nb" }), codes.InvalidArgument, reservation.LabelInvalid},
		"unknown kind":        {fail(func(r *idemdv1.FailRequest) { r.Kind = 259 }), codes.InvalidArgument, reservation.EnumInvalid},
		"negative retry":      {fail(func(r *idemdv1.FailRequest) { r.RetryAfter = durationpb.New(-1) }), codes.InvalidArgument, reservation.DurationOutOfRange},
		"retention of Fail 0": {fail(func(r *idemdv1.FailRequest) { r.Retention = durationpb.New(0) }), codes.InvalidArgument, reservation.DurationOutOfRange},
		"5 MiB body":          {bigBody, codes.ResourceExhausted, reservation.ResultTooLarge},
		"unknown verdict":     {noVerdict, codes.InvalidArgument, reservation.EnumInvalid},
	} {
		code, reason, metadata, _ := explained(t, c.err)
		if code != c.code || reason != string(c.reason) {
			t.Errorf("%s: got %v %s (%v), want %s", name, code, reason, c.err, c.reason)
		}
		if metadata["field"] == "" {
			t.Errorf("%s: no field is named", name)
		}
	}
	if report, err := f.harness.Store.Check(t.Context()); err != nil || report.Records != 0 {
		t.Errorf("%d records were stored (%v)", report.Records, err)
	}
}

func TestAMessageOverTheLimitIsRefusedAndTheLargestRecordFits(t *testing.T) {
	f := serve(t, nil)
	_, err := f.Complete(t.Context(), &idemdv1.CompleteRequest{Result: &idemdv1.Result{Body: make([]byte, MaxMessageBytes)}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
	if _, err := f.Reserve(t.Context(), reserveRequest("big", 1)); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, reservation.MaxBodyBytes)
	if _, err := f.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: "big", OwnerToken: token(1), Result: &idemdv1.Result{Body: body}}); err != nil {
		t.Fatal(err)
	}
	replay, err := f.Reserve(t.Context(), reserveRequest("big", 2))
	if err != nil || len(replay.GetReplay().GetResult().GetBody()) != len(body) {
		t.Errorf("replayed %d bytes (%v)", len(replay.GetReplay().GetResult().GetBody()), err)
	}
}

type unavailable struct{ store.Store }

func (unavailable) Apply(_ context.Context, commands []reservation.Command) []reservation.Outcome {
	outcomes := make([]reservation.Outcome, len(commands))
	for i := range outcomes {
		outcomes[i] = store.Unavailable()
	}
	return outcomes
}

func TestAStoreThatIsAwayIsUnavailableWithARetryHint(t *testing.T) {
	f := serve(t, func(s store.Store) store.Store { return unavailable{s} })
	_, err := f.Reserve(t.Context(), reserveRequest("k", 1))
	wantReason(t, err, codes.Unavailable, reservation.StoreUnavailable)
	if _, _, _, retry := explained(t, err); retry <= 0 {
		t.Error("no retry hint")
	}
}

func TestASecretNeverReachesLogsOrErrors(t *testing.T) {
	f := serve(t, nil)
	secret := "SECRET-0123456789"
	request := reserveRequest("KEY-"+secret, 1)
	request.OwnerToken, request.Owner = []byte("TOKEN-"+secret), "owner\x00"+secret
	errs := []error{}
	_, err := f.Reserve(t.Context(), request)
	errs = append(errs, err)
	request.Owner = "pod"
	_, err = f.Reserve(t.Context(), request)
	errs = append(errs, err)
	_, err = f.Complete(t.Context(), &idemdv1.CompleteRequest{
		Tenant: "acme", Key: request.GetKey(), OwnerToken: []byte("OTHER-" + secret), Result: &idemdv1.Result{Body: []byte(secret)},
	})
	errs = append(errs, err)
	for _, err := range errs {
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("an error says %v", err)
		}
	}
	withToken := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+secret)
	_, _ = f.Lookup(withToken, &idemdv1.LookupRequest{Tenant: "acme", Key: "KEY-" + secret})
	_, _ = f.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: secret + " is no tenant", Key: "k"})
	_, _ = f.Batch(t.Context(), &idemdv1.BatchRequest{Commands: []*idemdv1.BatchCommand{{Command: &idemdv1.BatchCommand_Reserve{Reserve: request}}}})
	if strings.Contains(f.log.String(), "SECRET") {
		t.Errorf("the log says %s", f.log)
	}
	if !strings.Contains(f.log.String(), "/idemd.v1.IdempotencyService/Reserve") && !strings.Contains(f.log.String(), `"grpc.method":"Reserve"`) {
		t.Errorf("the log does not name the calls: %s", f.log)
	}
}

func TestReflectionAndHealthAnswer(t *testing.T) {
	e, err := engine.New(engine.Options{Store: storetest.OpenMem(t).Store})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	server := New(Options{Engine: e, Health: health.NewServer(), Metrics: grpcprom.NewServerMetrics(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	for _, service := range []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "idemd.v1.IdempotencyService", "idemd.v1.OperatorService"} {
		if _, served := server.GetServiceInfo()[service]; !served {
			t.Errorf("%s is not served", service)
		}
	}
}

package idemgrpc_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// direct calls a guard with metadata that a gRPC client of Go would not send.
func direct(t *testing.T, s *shop, values ...string) error {
	t.Helper()
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(guardtest.Bounded(t), metadata.MD{idemgrpc.KeyHeader: values})
	_, err = guard(ctx, order(1), &grpc.UnaryServerInfo{FullMethod: unary}, func(context.Context, any) (any, error) { return receipt(), nil })
	return err
}

func TestAKeyThatIsNoneIsRefusedAndNothingIsStored(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	for name, values := range map[string][]string{
		"empty":                     {""},
		"spaces":                    {"   "},
		"a tab":                     {"\t"},
		"DEL":                       {"k\x7f"},
		"a trailing space":          {"k "},
		"two equal ones":            {"k", "k"},
		"two different ones":        {"k", "l"},
		"two, joined by a proxy":    {"k,k"},
		"joined with a space":       {"k, k"},
		"not ASCII":                 {"платёж-1"},
		"garbled by a Java client":  {"??????-1"},
		"replacement characters":    {"\ufffd\ufffd-1"},
		"empty quotes":              {`""`},
		"half a quote":              {`"k`},
		"quotes within":             {`"a"b"`},
		"an escape of nothing":      {`"a\b"`},
		"an escape at the end":      {`"ab\"`},
		"parameters":                {`"k";p=1`},
		"longer than a key can be":  {strings.Repeat("k", 256)},
		"quoted, longer than a key": {`"` + strings.Repeat("k", 256) + `"`},
	} {
		err := direct(t, s, values...)
		wantRefusal(t, err, codes.InvalidArgument, idemgrpc.ReasonKeyInvalid, false)
		for _, value := range values {
			if trimmed := strings.Trim(value, " \t\""); len(trimmed) > 3 && strings.Contains(err.Error(), trimmed) {
				t.Errorf("%s: the key is in the error", name)
			}
		}
	}
	if s.Daemon.Calls() != 0 {
		t.Errorf("the daemon was called %d times", s.Daemon.Calls())
	}
	if err := direct(t, s, strings.Repeat("k", 255)); err != nil {
		t.Errorf("the longest key: %v", err)
	}
}

func TestAQuotedKeyIsTheBareOne(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{}), idem.Options{})
	for bare, quoted := range map[string]string{`k-1`: `"k-1"`, `a\b`: `"a\\b"`} {
		first, again := s.call(t, bare, order(1)), s.call(t, quoted, order(1))
		if first.err != nil || !again.replayed() {
			t.Errorf("%s: answered %v, then %v", quoted, first.err, again.err)
		}
	}
}

func TestWithoutAKeyACallIsRefusedOrRunsUnguardedAndIsToldOf(t *testing.T) {
	for need, want := range map[idemgrpc.Need][]idemgrpc.Ending{
		idemgrpc.Required: {idemgrpc.Refused},
		idemgrpc.Optional: {idemgrpc.Unguarded},
		idemgrpc.Off:      nil,
	} {
		s := open(t, guarding(idemgrpc.Guard{Need: need}), idem.Options{})
		a := s.callIn(guardtest.Bounded(t), order(1))
		if need == idemgrpc.Required {
			wantRefusal(t, a.err, codes.InvalidArgument, idemgrpc.ReasonKeyRequired, false)
			s.MustHaveRun(t, 0)
		} else if a.err != nil {
			t.Errorf("need %d: answered %v", need, a.err)
		}
		s.wantEndings(t, want...)
		if s.Daemon.Calls() != 0 {
			t.Errorf("need %d: the daemon was called", need)
		}
	}
	s := open(t, guarding(idemgrpc.Guard{Need: idemgrpc.Optional}), idem.Options{})
	if first, again := s.call(t, "k", order(1)), s.call(t, "k", order(1)); first.err != nil || !again.replayed() {
		t.Errorf("with an optional key: %v, then %v", first.err, again.err)
	}
}

// The health service's request has a string field to hold a key.
func TestAKeyMayStandInAFieldOfTheRequest(t *testing.T) {
	s := open(t, idemgrpc.Config{Methods: map[string]idemgrpc.Guard{check: {KeyField: "service"}}}, idem.Options{})
	health := grpc_health_v1.NewHealthClient(s.conn)
	call := func(ctx context.Context, field string) (bool, error) {
		var header metadata.MD
		response, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: field}, grpc.Header(&header))
		if err == nil && !proto.Equal(response, &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}) {
			t.Errorf("answered %v", response)
		}
		return header.Get(idemgrpc.ReplayedHeader) != nil, err
	}
	for i, at := range []struct {
		ctx   context.Context
		field string
	}{{guardtest.Bounded(t), "k"}, {keyed(guardtest.Bounded(t), "k"), "k"}, {keyed(guardtest.Bounded(t), "k"), ""}} {
		if replayed, err := call(at.ctx, at.field); err != nil || replayed != (i > 0) {
			t.Errorf("%d: answered %v, replayed %v", i, err, replayed)
		}
	}
	s.MustHaveRun(t, 1)
	_, err := call(keyed(guardtest.Bounded(t), "another"), "k")
	wantRefusal(t, err, codes.InvalidArgument, idemgrpc.ReasonKeyInvalid, false)
	_, err = call(guardtest.Bounded(t), "two words")
	wantRefusal(t, err, codes.InvalidArgument, idemgrpc.ReasonKeyInvalid, false)
	_, err = call(guardtest.Bounded(t), "")
	wantRefusal(t, err, codes.InvalidArgument, idemgrpc.ReasonKeyRequired, false)
}

package grpcserver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/reservation"
)

// logged is the line that a call leaves.
func logged(t *testing.T, level slog.Level, ctx context.Context, request any, answer error) map[string]any {
	t.Helper()
	var log bytes.Buffer
	known := func(access.Credentials) (*access.Identity, *reservation.Error) {
		return &access.Identity{Name: "svc", Roles: access.Caller, Tenants: []string{"acme"}}, nil
	}
	l := &callLog{
		logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: level})),
		gate:   newGate(known, func(reservation.Reason) {}), key: strings.ToUpper,
	}
	_, _ = l.unary(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/idemd.v1.IdempotencyService/Reserve"},
		func(context.Context, any) (any, error) { return nil, answer })
	if log.Len() == 0 {
		return nil
	}
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	return line
}

func TestALoggedCallNamesWhoWhereAndItsRequest(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-request-id", "req-1"))
	line := logged(t, slog.LevelInfo, ctx, &idemdv1.ReserveRequest{Tenant: "acme", Key: "order-1"}, status.Error(codes.Internal, "internal error"))
	for field, want := range map[string]any{
		"level": "ERROR", "method": "/idemd.v1.IdempotencyService/Reserve", "code": "Internal", "error": "internal error",
		"request_id": "req-1", "identity": "svc", "tenant": "acme", "namespace": "default", "key": "ORDER-1",
	} {
		if line[field] != want {
			t.Errorf("%s is %v, want %v", field, line[field], want)
		}
	}
}

func TestTheLogOfABatchSaysHowLargeItWas(t *testing.T) {
	line := logged(t, slog.LevelDebug, t.Context(), &idemdv1.BatchRequest{Commands: make([]*idemdv1.BatchCommand, 3)}, nil)
	if line["commands"] != 3.0 {
		t.Errorf("the line is %v", line)
	}
}

func TestWhatIsWellIsLoggedForDebuggingOnly(t *testing.T) {
	if line := logged(t, slog.LevelInfo, t.Context(), &idemdv1.ReserveRequest{}, nil); line != nil {
		t.Errorf("the log says %v", line)
	}
}

func TestNamesThatAreNoneAreNotLogged(t *testing.T) {
	for _, request := range []*idemdv1.ReserveRequest{
		{Tenant: strings.Repeat("x", 1<<20), Key: "k"}, {Tenant: "acme", Key: "with\nlines"}, {Tenant: "acme"},
	} {
		line := logged(t, slog.LevelDebug, t.Context(), request, nil)
		if line["tenant"] != nil || line["key"] != nil {
			t.Errorf("an invalid name is logged: %.100q", line)
		}
	}
}

func TestARequestsIDIsLoggedOnlyIfItIsSane(t *testing.T) {
	for _, ids := range [][]string{{strings.Repeat("x", 129)}, {"a b"}, {"a\x1b[0m"}, {"one", "two"}, {""}} {
		md := metadata.MD{"x-request-id": ids}
		line := logged(t, slog.LevelDebug, metadata.NewIncomingContext(t.Context(), md), &idemdv1.ReserveRequest{}, nil)
		if id, is := line["request_id"]; is {
			t.Errorf("%.20q is logged as %v", ids, id)
		}
	}
}

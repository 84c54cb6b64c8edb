package idemgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestEachEndingOfAHandlerIsToldInOneCompleteOrFail(t *testing.T) {
	away := status.Error(codes.Unavailable, "bank away")
	endings := map[string]func(context.Context) (any, error){
		"a panic":         func(context.Context) (any, error) { panic("in the middle") },
		"Goexit":          func(context.Context) (any, error) { runtime.Goexit(); return nil, nil },
		"no status":       func(context.Context) (any, error) { return nil, errors.New("no status") },
		"not executed":    func(context.Context) (any, error) { return nil, idem.NotExecuted(away) },
		"final":           func(context.Context) (any, error) { return nil, idem.Final(away) },
		"unknown":         func(context.Context) (any, error) { return nil, idem.Unknown(away) },
		"several":         func(context.Context) (any, error) { return nil, errors.Join(idem.Final(away), away) },
		"of another Do":   func(context.Context) (any, error) { return nil, &idem.UnresolvedError{Err: away} },
		"no response":     func(context.Context) (any, error) { return nil, nil },
		"no UTF-8":        func(context.Context) (any, error) { return &testpb.SimpleResponse{Username: "\xff"}, nil },
		"its caller gone": nil,
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		endings[code.String()] = func(context.Context) (any, error) { return receipt(), status.Error(code, "so it ended") }
	}
	for name, end := range endings {
		for _, mode := range []idem.Mode{idem.External, idem.Transactional} {
			t.Run(fmt.Sprint(name, mode), func(t *testing.T) {
				var s guardtest.Room[idemgrpc.Event]
				s.Open(t, idem.Options{})
				guard, err := idemgrpc.UnaryServerInterceptor(s.Client, guarding(idemgrpc.Guard{Mode: mode}))
				if err != nil {
					t.Fatal(err)
				}
				told := s.CountOutcomes()
				ctx, hangUp := context.WithCancel(metadata.NewIncomingContext(guardtest.Bounded(t), metadata.Pairs(idemgrpc.KeyHeader, "k")))
				defer hangUp()
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					_, _ = guard(ctx, order(1), &grpc.UnaryServerInfo{FullMethod: unary}, func(ctx context.Context, _ any) (any, error) {
						if end == nil {
							hangUp()
							<-ctx.Done()
							return nil, ctx.Err()
						}
						return end(ctx)
					})
				}()
				<-ended
				s.MustHaveTold(t, told, 1)
				if is := s.Daemon.Record("acme", "", "k"); is.GetState() == idemdv1.State_STATE_PROCESSING {
					t.Errorf("stored is %v", is)
				}
			})
		}
	}
}

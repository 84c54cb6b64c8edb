package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/examples/payments/bank"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
)

const (
	// lease is how long this service may be silent before its callers stop waiting for
	// it: short, so that the tour takes seconds. 30 s is a better one.
	lease = 2 * time.Second
	// patience is how long the bank is waited for.
	patience = time.Second
	// settle is how long after an attempt was given up its request may still be under
	// way: as long as it was waited for, and then as long as the bank may take.
	settle = patience + bank.Slowest
)

// Server is a gRPC server with payments on it, guarded.
func (s *Service) Server(client *idem.Client) (*grpc.Server, error) {
	guard, err := idemgrpc.UnaryServerInterceptor(client, idemgrpc.Config{
		Observe: func(_ context.Context, e idemgrpc.Event) {
			s.Log.Info("call", "method", e.Method, "ending", e.Ending, "reason", e.Reason)
		},
		// Users are fields of the requests, so they are in the fingerprints already;
		// elsewhere Config.Subject adds them.
		Methods: map[string]idemgrpc.Guard{
			// The bank is outside: who dies in the middle may have charged. Nobody repeats it
			// before the bank was asked.
			paymentsv1.PaymentsService_Charge_FullMethodName: {
				Mode: idem.External, Lease: lease, Settle: settle, Validate: validate, Reconcile: s.askBank,
			},
			// All of it is in one transaction of our own: who dies in the middle has changed
			// nothing, or has left the key beside the change.
			paymentsv1.PaymentsService_UpdateAccount_FullMethodName: {
				Mode: idem.Transactional, Lease: lease, Validate: validate,
			},
		},
	})
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(guard))
	paymentsv1.RegisterPaymentsServiceServer(server, s)
	return server, nil
}

// validate refuses what can't be meant, before it takes a key.
func validate(_ context.Context, request proto.Message) error {
	wrong := ""
	switch r := request.(type) {
	case *paymentsv1.ChargeRequest:
		if r.GetUser() == "" || r.GetOrder() == "" || len(r.GetOrder()) > 64 || r.GetCents() < 1 || r.GetCard() == "" {
			wrong = "a charge needs a user, an order of 1 to 64 bytes, cents of at least 1 and a card"
		}
	case *paymentsv1.UpdateAccountRequest:
		if r.GetUser() == "" || r.GetId() == "" || r.GetLimitCents() < 0 || r.GetVersion() < 1 {
			wrong = "a change needs a user, an account, a limit of at least 0 and the version that was read"
		}
	}
	if wrong != "" {
		return status.Error(codes.InvalidArgument, wrong)
	}
	return nil
}

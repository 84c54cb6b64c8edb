package service

import (
	"context"
	"errors"
	"log/slog"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/examples/payments/bank"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
	"github.com/idemd/idemd/examples/payments/refusal"
)

// Cards at which this service itself makes trouble.
const (
	// CardCrash: it dies once the bank has booked, before anybody hears of it.
	CardCrash = "crash"
	// CardCrashEarly: the first attempt dies before it has called the bank.
	CardCrashEarly = "crash-early"
)

// Service is payments.
type Service struct {
	paymentsv1.UnimplementedPaymentsServiceServer
	// Bank books.
	Bank *bank.Client
	// Accounts keep accounts.
	Accounts *Accounts
	// Log is told what callers are not.
	Log *slog.Logger
	// Die ends the process at once, as kill -9 does.
	Die func()
}

// Charge books at the bank. The guard sees to it that one attempt runs at a time, and
// that the next one runs only when the bank has certainly not booked.
func (s *Service) Charge(ctx context.Context, r *paymentsv1.ChargeRequest) (*paymentsv1.ChargeResponse, error) {
	grant, guarded := idem.GrantFrom(ctx)
	if !guarded {
		return nil, status.Error(codes.Internal, "charges run behind a guard only")
	}
	if r.GetCard() == CardCrashEarly && grant.Attempt == 1 {
		s.Die()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The derived key is the same on every attempt, so it is the name under which the
	// bank knows the booking again, and under which it can be asked for it. It is also the
	// same where the key comes again after its retention, most likely with a retry that was
	// very late: the bank then answers with the old booking, and charges nobody twice. (The
	// time of the grant in it, as beside an account's change, would make it a new charge.)
	booking, err := s.Bank.Book(ctx, bank.Request{
		Reference: grant.DeriveKey("booking"), Order: r.GetOrder(), Cents: r.GetCents(), Card: r.GetCard(),
	})
	if r.GetCard() == CardCrash {
		s.Die()
	}
	switch {
	case errors.Is(err, bank.ErrDeclined):
		return nil, refusal.New(refusal.CardDeclined, "the bank has declined the card", nil)
	case errors.Is(err, bank.ErrBusy):
		return nil, idem.NotExecuted(status.Error(codes.Unavailable, "the bank is busy"))
	case err != nil:
		// What the guard takes it for all the same; said for the reader.
		return nil, idem.Unknown(status.Error(codes.Unavailable, "the bank has not answered"))
	}
	return charged(r, booking)
}

// askBank finds out what became of a charge whose attempt died or heard nothing.
func (s *Service) askBank(ctx context.Context, request proto.Message, u *idem.Unresolved) (idem.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	charge := request.(*paymentsv1.ChargeRequest)
	booking, err := s.Bank.Find(ctx, u.DeriveKey("booking"))
	switch {
	case err != nil:
		return idem.Verdict{}, err
	case booking == nil:
		s.Log.Info("the bank was asked, and has no booking", "order", charge.GetOrder())
		return idem.WasNotExecuted(), nil
	}
	s.Log.Info("the bank was asked, and has a booking", "order", charge.GetOrder(), "booking", booking.Booking)
	var verdict idem.Verdict
	if response, err := charged(charge, booking); err != nil {
		verdict = idem.WasRefused(idemgrpc.StatusResult(status.Convert(err)))
	} else {
		verdict = idem.WasExecuted(idemgrpc.ResponseResult(response))
	}
	verdict.Evidence = "the bank's statement has " + booking.Booking
	return verdict, nil
}

// charged is the answer, whoever has heard of the booking first. One of another charge is
// of a time when the key named that, which idemd has forgotten and the bank has not: this
// charge was not booked, and under this key never is.
func charged(r *paymentsv1.ChargeRequest, b *bank.Booking) (*paymentsv1.ChargeResponse, error) {
	if b.Order != r.GetOrder() || b.Cents != r.GetCents() {
		return nil, refusal.New(refusal.KeyReused, "the key was used for another charge before: a new charge needs a new key", nil)
	}
	return &paymentsv1.ChargeResponse{Booking: b.Booking, Order: b.Order, Cents: b.Cents}, nil
}

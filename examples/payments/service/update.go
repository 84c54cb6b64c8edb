package service

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
	"github.com/idemd/idemd/examples/payments/refusal"
)

// GetAccount reads an account.
func (s *Service) GetAccount(ctx context.Context, r *paymentsv1.GetAccountRequest) (*paymentsv1.GetAccountResponse, error) {
	account, err := s.Accounts.Get(ctx, r.GetId())
	if err != nil {
		return nil, s.accountError(err)
	}
	return &paymentsv1.GetAccountResponse{Account: account}, nil
}

// UpdateAccount changes an account unless somebody else has done so since it was read.
func (s *Service) UpdateAccount(ctx context.Context, r *paymentsv1.UpdateAccountRequest) (*paymentsv1.UpdateAccountResponse, error) {
	grant, guarded := idem.GrantFrom(ctx)
	if !guarded {
		return nil, status.Error(codes.Internal, "changes run behind a guard only")
	}
	account, err := s.Accounts.Update(ctx, grant.Key, grant.ReservedAt, r.GetId(), r.GetLimitCents(), r.GetVersion())
	if err != nil {
		return nil, s.accountError(err)
	}
	return &paymentsv1.UpdateAccountResponse{Account: account}, nil
}

// accountError is what the caller is told.
//
// A lost update is refused for good: it was certainly not done, and as versions only grow
// it never can be. So its retry hears the same refusal, with the version of back then; who
// wants the change all the same reads the account, decides anew, and sends another request
// under another key. (ABORTED would be the other code for it. By the guard's table it runs
// the same request again, to lose again.)
func (s *Service) accountError(err error) error {
	var conflict *conflictError
	switch {
	case errors.As(err, &conflict):
		return refusal.New(refusal.VersionConflict, conflict.Error(), map[string]string{"version": strconv.FormatInt(conflict.current, 10)})
	case errors.Is(err, sql.ErrNoRows):
		return status.Error(codes.NotFound, "there is no such account")
	}
	s.Log.Warn("accounts", "error", err.Error())
	answer := status.Error(codes.Unavailable, "the accounts can't be reached")
	if idem.Declared(err) { // the commit's own outcome is not known
		return idem.Unknown(answer)
	}
	return answer
}

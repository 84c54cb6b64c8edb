package idemgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
)

// operation is what a request means, taken before anything can change it. The error is
// the caller's answer.
func (s *server) operation(ctx context.Context, m *method, key string, request proto.Message) (op idem.Operation, err error) {
	op = m.operation
	op.Key = key
	if m.KeyHasTime {
		op.FirstAttemptAt, _ = idem.KeyTime(key)
	}
	op.Tenant, err = asked(ctx, s.config.Tenant, request)
	if err == nil && op.Tenant == "" && s.config.Tenant != nil { // not the client's instead
		err = status.Error(codes.PermissionDenied, "the caller has no tenant")
	}
	if err != nil {
		s.observe(ctx, Event{Method: m.name, Ending: Refused, Err: err})
		return op, err
	}
	subject, err := asked(ctx, s.config.Subject, request)
	if err != nil {
		s.observe(ctx, Event{Method: m.name, Ending: Refused, Err: err})
		return op, err
	}
	if op.Fingerprint, err = m.fingerprint.Sum(subject, request); err != nil {
		reason := ReasonRequestRefused
		if refused := (*fingerprint.RefusedError)(nil); errors.As(err, &refused) && refused.Problem == fingerprint.TooLarge {
			reason = ReasonRequestTooLarge
		}
		return op, s.refuse(ctx, m, refusal(reason, 0, err.Error()), err)
	}
	return op, nil
}

func asked(ctx context.Context, who func(context.Context, proto.Message) (string, error), request proto.Message) (string, error) {
	if who == nil {
		return "", nil
	}
	return who(ctx, request)
}

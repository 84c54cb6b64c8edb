package idemgrpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
)

// operation is what a request means, taken before anything can change it. The error is
// the caller's answer.
func (s *server) operation(ctx context.Context, g *guard, key string, request proto.Message) (op idem.Operation, err error) {
	op = idem.Operation{
		Namespace: g.Namespace, Key: key, Mode: g.Mode, Lease: g.Lease, Retention: g.Retention,
		Wait: g.Wait, MinRemaining: g.MinRemaining, Settle: g.Settle, PolicyVersion: g.PolicyVersion,
	}
	if g.KeyHasTime {
		op.FirstAttemptAt, _ = idem.KeyTime(key)
	}
	if g.Reconcile != nil {
		op.Reconcile = func(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
			return g.Reconcile(ctx, request, u)
		}
	}
	if op.Tenant, err = asked(ctx, s.config.Tenant, request); err != nil {
		s.observe(ctx, Event{Method: g.method, Ending: Refused, Err: err})
		return op, err
	}
	subject, err := asked(ctx, s.config.Subject, request)
	if err != nil {
		s.observe(ctx, Event{Method: g.method, Ending: Refused, Err: err})
		return op, err
	}
	if op.Fingerprint, err = g.fingerprint.Sum(subject, request); err != nil {
		code := codes.InvalidArgument
		if refused := (*fingerprint.RefusedError)(nil); errors.As(err, &refused) && refused.Problem == fingerprint.TooLarge {
			code = codes.ResourceExhausted
		}
		return op, s.refuse(ctx, g, refusal(code, ReasonRequestRefused, false, 0, err.Error()), err)
	}
	return op, nil
}

func asked(ctx context.Context, who func(context.Context, proto.Message) (string, error), request proto.Message) (string, error) {
	if who == nil {
		return "", nil
	}
	return who(ctx, request)
}

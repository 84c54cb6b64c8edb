package idemgrpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// call is one guarded call.
type call struct {
	*server
	method  *method
	request proto.Message
	handler grpc.UnaryHandler

	// What the handler has returned, if it ran.
	ran      bool
	response any
	err      error

	// reconciled: Guard.Reconcile has found out how an earlier attempt had ended.
	reconciled bool
}

// reconcile finds that out.
func (c *call) reconcile(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
	verdict, err := c.method.Reconcile(ctx, c.request, u)
	c.reconciled = err == nil && verdict != idem.Verdict{}
	return verdict, err
}

// run runs the handler as an attempt that was granted, and tells what its ending means.
func (c *call) run(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
	var noted *capture
	if len(c.headers) > 0 {
		ctx, noted = captured(ctx)
	}
	c.response, c.err = c.handler(ctx, c.request)
	c.ran = true
	header, trailer := noted.set()
	headers := headersOf(header, trailer, c.headers)
	if c.err == nil {
		message, _ := c.response.(proto.Message)
		result := ResponseResult(message)
		result.Headers = headers
		return result, nil
	}
	s, another := ownStatus(c.err)
	result := StatusResult(s)
	result.Headers = headers
	outcome := OutcomeUndeclared
	if c.config.Outcome != nil {
		outcome = c.config.Outcome(c.method.name, s)
	}
	if outcome == OutcomeUndeclared && !another {
		outcome = DefaultOutcome(s.Code())
	}
	return result, declared(c.err, outcome)
}

// answer is what the caller is told once Do has ended.
func (c *call) answer(ctx context.Context, answer *idem.Answer, err error) (any, error) {
	if c.ran {
		return c.own(ctx, answer, err)
	}
	final, refused := err.(*idem.FinalError) //nolint:errorlint // Do's own error: what it wraps may be another Do's
	switch {
	case err == nil:
		return c.replay(ctx, answer, false)
	case refused:
		return c.replay(ctx, &final.Answer, true)
	case c.method.Open && guard.Unreachable(ctx, err):
		c.observe(ctx, Event{Method: c.method.name, Ending: Unguarded, Err: err})
		return c.handler(idem.WithGrant(ctx, nil), c.request)
	}
	return nil, c.refuse(ctx, c.method, refusalOf(err), err)
}

// own is the answer of the handler that has run in this call, recorded or not.
func (c *call) own(ctx context.Context, answer *idem.Answer, err error) (any, error) {
	reason, expires, unrecorded := guard.Recorded(answer, err)
	ending := Executed
	if unrecorded != nil {
		ending = Unrecorded
	}
	c.observe(ctx, Event{Method: c.method.name, Ending: ending, Reason: reason, Err: unrecorded, Reconciled: c.reconciled})
	announce(ctx, expiry(expires))
	if c.err == nil {
		return c.response, nil
	}
	s, _ := ownStatus(c.err)
	if reason != "" { // the key is not over: say so
		s = hinted(s, reason, 0)
	}
	return nil, &handlerError{s, c.err.Error(), err}
}

// handlerError is a handler's error as the caller sees it.
type handlerError struct {
	status *status.Status
	text   string
	// err is that of Do, which wraps the handler's own: interceptors further out find it,
	// and a guard further out sees that what it declares was not declared about its call.
	err error
}

// Error implements error.
func (e *handlerError) Error() string { return e.text }

// GRPCStatus makes status.FromError work.
func (e *handlerError) GRPCStatus() *status.Status { return e.status }

// Unwrap implements errors.Is.
func (e *handlerError) Unwrap() error { return e.err }

// replay is the stored answer, as it was: a response, or a refusal.
func (c *call) replay(ctx context.Context, answer *idem.Answer, refused bool) (any, error) {
	header, trailer := metadataIn(answer.Result, c.headers)
	announce(ctx, metadata.Join(header, expiry(answer.ExpiresAt), metadata.Pairs(ReplayedHeader, "true")))
	if len(trailer) > 0 {
		_ = grpc.SetTrailer(ctx, trailer)
	}
	event := Event{Method: c.method.name, Ending: Replayed, Reconciled: c.reconciled}
	if refused {
		c.observe(ctx, event)
		return nil, statusIn(answer.Result).Err()
	}
	response := c.method.responseIn(answer.Result)
	if response == nil {
		event.Reason = ReasonAnswerNotKept
		c.observe(ctx, event)
		return nil, notKept(answer.Result).Err()
	}
	c.observe(ctx, event)
	return response, nil
}

// expiry is the header that tells until when an answer is replayed.
func expiry(at time.Time) metadata.MD {
	if at.IsZero() {
		return nil
	}
	return metadata.Pairs(ExpiresHeader, at.UTC().Format(time.RFC3339Nano))
}

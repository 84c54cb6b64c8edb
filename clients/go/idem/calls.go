package idem

import (
	"context"
	"time"

	"google.golang.org/grpc"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The plain calls, for who needs another protocol than Do's. Each is repeated, with the
// same request, while the daemon is unavailable, within ctx and Options.Patience; its
// errors are *Error. After an error that leaves it open whether a Reserve was granted,
// repeat it with the same token, or Fail it.

// Reserve asks for the right to execute an operation.
func (c *Client) Reserve(ctx context.Context, r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	return plain(ctx, c, r.GetWait().AsDuration(), c.service.Reserve, r)
}

// Extend prolongs a lease.
func (c *Client) Extend(ctx context.Context, r *idemdv1.ExtendRequest) (*idemdv1.ExtendResponse, error) {
	return plain(ctx, c, 0, c.service.Extend, r)
}

// Complete stores the result of an attempt.
func (c *Client) Complete(ctx context.Context, r *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error) {
	return plain(ctx, c, 0, c.service.Complete, r)
}

// Fail tells how an attempt ended that did not succeed.
func (c *Client) Fail(ctx context.Context, r *idemdv1.FailRequest) (*idemdv1.FailResponse, error) {
	return plain(ctx, c, 0, c.service.Fail, r)
}

// Lookup shows a reservation.
func (c *Client) Lookup(ctx context.Context, r *idemdv1.LookupRequest) (*idemdv1.LookupResponse, error) {
	return plain(ctx, c, r.GetWait().AsDuration(), c.service.Lookup, r)
}

// Resolve gives the verdict on an unresolved operation.
func (c *Client) Resolve(ctx context.Context, r *idemdv1.ResolveRequest) (*idemdv1.ResolveResponse, error) {
	return plain(ctx, c, 0, c.operator.Resolve, r)
}

func plain[Request, Response any](
	ctx context.Context, c *Client, wait time.Duration,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error), request *Request,
) (response *Response, _ error) {
	err := persist(ctx, c.options.Patience, wait+callTimeout, func(ctx context.Context) (err error) {
		response, err = method(ctx, request)
		return err
	})
	if err != nil { // not the nil *Error, which is no nil error
		return nil, err
	}
	return response, nil
}

package idemgrpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// capture is a stream that notes which headers and trailers a handler sets.
type capture struct {
	grpc.ServerTransportStream
	mu              sync.Mutex
	header, trailer metadata.MD
}

// captured puts a capture into the handler's context; nil where there is no stream.
func captured(ctx context.Context) (context.Context, *capture) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ctx, nil
	}
	c := &capture{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, c), c
}

// SetHeader implements grpc.ServerTransportStream.
func (c *capture) SetHeader(md metadata.MD) error {
	err := c.ServerTransportStream.SetHeader(md)
	if err == nil {
		c.note(&c.header, md)
	}
	return err
}

// SendHeader implements grpc.ServerTransportStream.
func (c *capture) SendHeader(md metadata.MD) error {
	err := c.ServerTransportStream.SendHeader(md)
	if err == nil {
		c.note(&c.header, md)
	}
	return err
}

// SetTrailer implements grpc.ServerTransportStream.
func (c *capture) SetTrailer(md metadata.MD) error {
	err := c.ServerTransportStream.SetTrailer(md)
	if err == nil {
		c.note(&c.trailer, md)
	}
	return err
}

func (c *capture) note(where *metadata.MD, md metadata.MD) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*where = metadata.Join(*where, md)
}

// set is what was set until now.
func (c *capture) set() (header, trailer metadata.MD) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header.Copy(), c.trailer.Copy()
}

// announce adds to the headers of the answer, or to its trailers where the headers have
// left already. Without a stream there is nobody to tell.
func announce(ctx context.Context, md metadata.MD) {
	if len(md) > 0 && grpc.SetHeader(ctx, md) != nil {
		_ = grpc.SetTrailer(ctx, md)
	}
}

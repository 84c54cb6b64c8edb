package idemgrpc

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// ClientConfig says which calls carry a key. It is read once.
type ClientConfig struct {
	// Methods are the full names of the methods that get one: "/shop.v1.Orders/Create".
	Methods []string
}

// UnaryClientInterceptor gives each call of the chosen methods a key of its own, unless
// it has one: [WithKey], [WithDerivedKey], or metadata. One call has one key through all
// retries that are made beneath the interceptor: those of the service config, and of
// retrying interceptors that come AFTER it in the chain. One that comes before makes a
// new call, with a new key, of each try.
//
// A key of an incoming call, or of an HTTP request behind idemhttp, that was copied into
// the outgoing metadata is taken out, on every unary method: it names another operation.
//
// The error names methods that are not known, or stream.
func UnaryClientInterceptor(c ClientConfig) (grpc.UnaryClientInterceptor, error) {
	chosen := map[string]bool{}
	for _, name := range c.Methods {
		method, err := methodOf(name)
		if err != nil {
			return nil, fmt.Errorf("idemgrpc: %s: %w", name, err)
		}
		if method.IsStreamingClient() || method.IsStreamingServer() {
			return nil, fmt.Errorf("idemgrpc: %s streams: only unary calls carry keys", name)
		}
		chosen[name] = true
	}
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		ctx = withOwnKey(ctx, chosen[method])
		if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get(KeyHeader)) == 0 {
			return invoke(ctx, method, request, reply, conn, o...)
		}
		var header, trailer metadata.MD
		o = append(slices.Clip(o), grpc.Header(&header), grpc.Trailer(&trailer))
		err := invoke(ctx, method, request, reply, conn, o...)
		if err != nil && ReasonOf(err) == "" && len(header.Get(ExpiresHeader))+len(trailer.Get(ExpiresHeader)) > 0 {
			return &recordedError{err}
		}
		return err
	}, nil
}

// recordedError is a refusal of a handler's that its guard has recorded: it says until when
// it will replay it.
type recordedError struct{ err error }

// Error implements error.
func (e *recordedError) Error() string { return e.err.Error() }

// GRPCStatus makes status.FromError work.
func (e *recordedError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// Unwrap implements errors.Is.
func (e *recordedError) Unwrap() error { return e.err }

type keyKey struct{}

// WithKey gives the next call, and its retries, this key, whatever else is in its
// metadata. Use it for one logical call: two that share a context made by it share the
// key. The empty key is none.
func WithKey(ctx context.Context, key string) context.Context {
	if key == "" {
		return ctx
	}
	return setKey(context.WithValue(ctx, keyKey{}, key), key)
}

// WithDerivedKey gives the next call a key that is derived from the guarded call in which
// it is made: the same on every attempt. One label names one downstream call. In a
// handler that runs unguarded it changes nothing, and the interceptor makes a new key.
func WithDerivedKey(ctx context.Context, label string) context.Context {
	g, is := idem.GrantFrom(ctx)
	if !is {
		return ctx
	}
	return WithKey(ctx, g.DeriveKey(label))
}

func setKey(ctx context.Context, keys ...string) context.Context {
	md, has := metadata.FromOutgoingContext(ctx) // a copy
	if !has {
		md = metadata.MD{}
	}
	md.Delete(KeyHeader)
	md.Set(KeyHeader, keys...)
	return metadata.NewOutgoingContext(ctx, md)
}

// withOwnKey takes out a key that leaked from an incoming call, and makes a new one where
// there is none and the method is a chosen one.
func withOwnKey(ctx context.Context, chosen bool) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	sent := md.Get(KeyHeader)
	own := guard.WithoutIncoming(ctx, sent)
	if wanted, is := ctx.Value(keyKey{}).(string); is {
		own = []string{wanted}
	}
	if len(own) == 0 && chosen {
		own = []string{idem.NewKey()}
	}
	if slices.Equal(own, sent) {
		return ctx
	}
	return setKey(ctx, own...)
}

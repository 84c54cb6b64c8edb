package idemgrpc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
)

// server is what the guarded calls of one interceptor share.
type server struct {
	client  *idem.Client
	config  Config
	guards  map[string]*guard
	headers []string // lower case
}

// UnaryServerInterceptor guards the methods that the configuration names. Key, tenant
// and fingerprint are fixed before the handler runs; what the handler returns is recorded
// whatever becomes of the caller.
//
// The error says everything that is wrong with the configuration: unknown methods, modes
// and fields, durations out of range. Building has no side effects.
//
// Put what identifies the caller (authentication) before it in the chain; recovery works
// on either side.
func UnaryServerInterceptor(client *idem.Client, c Config) (grpc.UnaryServerInterceptor, error) {
	if client == nil {
		return nil, errors.New("idemgrpc: there is no client")
	}
	guards, err := compile(c)
	if err != nil {
		return nil, err
	}
	s := &server{client: client, config: c, guards: guards}
	for _, name := range c.Headers {
		s.headers = append(s.headers, strings.ToLower(name))
	}
	slices.Sort(s.headers)
	s.headers = slices.Compact(s.headers)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		g := s.guards[info.FullMethod]
		if g == nil || g.Need == Off {
			return handler(ctx, request)
		}
		return s.guarded(ctx, g, request, handler)
	}, nil
}

// StreamServerInterceptor refuses streaming methods that the configuration guards, with
// UNIMPLEMENTED: a stream has no single answer that could be replayed. Others pass.
func StreamServerInterceptor(c Config) (grpc.StreamServerInterceptor, error) {
	guards, err := compile(c)
	if err != nil {
		return nil, err
	}
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if g := guards[info.FullMethod]; g != nil && g.Need != Off {
			return refusal(codes.Unimplemented, ReasonStreamNotGuarded, false, 0,
				"idemgrpc guards unary calls only: "+info.FullMethod+" streams, and has a guard").Err()
		}
		return handler(service, stream)
	}, nil
}

// guarded is one call of a guarded method.
func (s *server) guarded(ctx context.Context, g *guard, request any, handler grpc.UnaryHandler) (any, error) {
	message, is := request.(proto.Message)
	if !is {
		return nil, s.refuse(ctx, g, refusal(codes.Internal, ReasonGuardRefused, true, 0, "the request is no protobuf message"), nil)
	}
	key, err := g.key(ctx, message)
	switch {
	case err != nil:
		return nil, s.refuse(ctx, g, refusal(codes.InvalidArgument, ReasonKeyInvalid, false, 0, err.Error()), err)
	case key == "" && g.Need == Required:
		return nil, s.refuse(ctx, g, refusal(codes.InvalidArgument, ReasonKeyRequired, false, 0, g.keyPlaces()), nil)
	}
	if g.Validate != nil {
		if err := g.Validate(ctx, message); err != nil {
			s.observe(ctx, Event{Method: g.method, Ending: Refused, Err: err})
			return nil, err
		}
	}
	if key == "" {
		s.observe(ctx, Event{Method: g.method, Ending: Unguarded})
		return handler(idem.WithGrant(ctx, nil), request)
	}
	op, err := s.operation(ctx, g, key, message)
	if err != nil {
		return nil, err
	}
	c := &call{server: s, guard: g, request: request, handler: handler}
	answer, err := s.client.Do(ctx, op, c.run)
	return c.answer(ctx, answer, err)
}

func (g *guard) keyPlaces() string {
	if g.KeyField == "" {
		return "the call needs a key: metadata " + KeyHeader + ", the same on every retry"
	}
	return "the call needs a key: field " + g.KeyField + " or metadata " + KeyHeader + ", the same on every retry"
}

func (s *server) observe(ctx context.Context, e Event) {
	if s.config.Observe != nil {
		s.config.Observe(ctx, e)
	}
}

// refuse tells the observer, and returns the error for the caller.
func (s *server) refuse(ctx context.Context, g *guard, answer *status.Status, why error) error {
	s.observe(ctx, Event{Method: g.method, Ending: Refused, Reason: reasonIn(answer), Err: why})
	return answer.Err()
}

package idemgrpc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// server is what the guarded calls of one interceptor share.
type server struct {
	client  *idem.Client
	config  Config
	methods map[string]*method
	headers []string // lower case
}

// UnaryServerInterceptor guards the methods that the configuration names. Key, tenant
// and fingerprint are fixed before the handler runs; what the handler returns is recorded
// whatever becomes of the caller.
//
// The error says everything that is wrong with the configuration: methods that are not
// known or stream, modes and fields, durations out of range. Building has no side effects.
//
// Put what identifies the caller (authentication) before it in the chain; recovery works
// on either side.
func UnaryServerInterceptor(client *idem.Client, c Config) (grpc.UnaryServerInterceptor, error) {
	if client == nil {
		return nil, errors.New("idemgrpc: there is no client")
	}
	methods, err := compile(c)
	if err != nil {
		return nil, err
	}
	s := &server{client: client, config: c, methods: methods}
	for _, name := range c.Headers {
		s.headers = append(s.headers, strings.ToLower(name))
	}
	slices.Sort(s.headers)
	s.headers = slices.Compact(s.headers)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		m := s.methods[info.FullMethod]
		if m == nil || m.Need == Off {
			return handler(ctx, request)
		}
		return s.guarded(ctx, m, request, handler)
	}, nil
}

// guarded is one call of a guarded method.
func (s *server) guarded(ctx context.Context, m *method, request any, handler grpc.UnaryHandler) (any, error) {
	message, is := request.(proto.Message)
	if !is {
		return nil, s.refuse(ctx, m, refusal(ReasonGuardRefused, 0, "the request is no protobuf message"), nil)
	}
	key, err := m.key(ctx, message)
	switch {
	case err != nil:
		return nil, s.refuse(ctx, m, refusal(ReasonKeyInvalid, 0, err.Error()), err)
	case key == "" && m.Need == Required:
		return nil, s.refuse(ctx, m, refusal(ReasonKeyRequired, 0, m.keyPlaces()), nil)
	}
	ctx = received(ctx)
	if m.KeyField != "" && key != "" { // metadata is in the context anyway
		ctx = guard.WithIncoming(ctx, key)
	}
	if m.Validate != nil {
		if err := m.Validate(ctx, message); err != nil {
			s.observe(ctx, Event{Method: m.name, Ending: Refused, Err: err})
			return nil, err
		}
	}
	if key == "" {
		s.observe(ctx, Event{Method: m.name, Ending: Unguarded})
		return handler(idem.WithGrant(ctx, nil), request)
	}
	op, err := s.operation(ctx, m, key, message)
	if err != nil {
		return nil, err
	}
	c := &call{server: s, method: m, request: message, handler: handler}
	if m.Reconcile != nil {
		op.Reconcile = c.reconcile
	}
	answer, err := s.client.Do(ctx, op, c.run)
	return c.answer(ctx, answer, err)
}

func (m *method) keyPlaces() string {
	if m.KeyField == "" {
		return "metadata " + KeyHeader
	}
	return "field " + m.KeyField + " or metadata " + KeyHeader
}

func (s *server) observe(ctx context.Context, e Event) {
	if s.config.Observe != nil {
		s.config.Observe(ctx, e)
	}
}

// refuse tells the observer, and returns the error for the caller.
func (s *server) refuse(ctx context.Context, m *method, answer *status.Status, why error) error {
	s.observe(ctx, Event{Method: m.name, Ending: Refused, Reason: reasonIn(answer), Err: why})
	return answer.Err()
}

package grpcserver

import (
	"context"
	"crypto/x509"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/reservation"
)

// Identify tells whose credentials a call carries; the refusal is UNAUTHENTICATED.
type Identify func(access.Credentials) (*access.Identity, *reservation.Error)

// gate lets calls in: it knows who calls, demands the role that the call needs, and keeps
// each to its tenants. It comes before every handler and before any look at the store.
type gate struct {
	identify Identify // nil = nobody is asked who they are, and everybody is anyone
	anyone   *access.Identity
	refused  func(reservation.Reason)
}

func newGate(identify Identify, refused func(reservation.Reason)) *gate {
	return &gate{identify, access.Anyone(), refused}
}

type identityKey struct{}

// identityOf is who makes a call.
func identityOf(ctx context.Context) *access.Identity {
	if identity, is := ctx.Value(identityKey{}).(*access.Identity); is {
		return identity
	}
	return &access.Identity{} // who may do nothing
}

func (g *gate) unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if isOpen(info.FullMethod) {
		return handle(ctx, request)
	}
	identity, refusal := g.identity(ctx)
	if refusal == nil {
		refusal = identity.Require(rolesFor(info.FullMethod, request))
	}
	if refusal == nil {
		refusal = wall(identity, request)
	}
	if refusal != nil {
		g.refused(refusal.Reason)
		return nil, statusOf(refusal)
	}
	return handle(context.WithValue(ctx, identityKey{}, identity), request)
}

// stream is for the streams of gRPC's own services: health is open, reflection is for
// whoever has an identity.
func (g *gate) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	if !isOpen(info.FullMethod) {
		if _, refusal := g.identity(stream.Context()); refusal != nil {
			return statusOf(refusal)
		}
	}
	return handle(server, stream)
}

// isOpen: probes have no identity, and health tells nothing of anybody.
func isOpen(method string) bool {
	return strings.HasPrefix(method, "/"+healthgrpc.Health_ServiceDesc.ServiceName+"/")
}

func (g *gate) identity(ctx context.Context) (*access.Identity, *reservation.Error) {
	if g.identify == nil {
		return g.anyone, nil
	}
	return g.identify(credentialsOf(ctx))
}

func credentialsOf(ctx context.Context) access.Credentials {
	return access.Credentials{Authorization: metadata.ValueFromIncomingContext(ctx, "authorization"), Certificate: certificateOf(ctx)}
}

// certificateOf is the client's certificate, if the handshake has verified it.
func certificateOf(ctx context.Context) *x509.Certificate {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// rolesFor are the roles of which a call needs one. What is not named here is for
// operators.
func rolesFor(method string, request any) access.Roles {
	switch method {
	case idemdv1.IdempotencyService_Reserve_FullMethodName, idemdv1.IdempotencyService_Extend_FullMethodName,
		idemdv1.IdempotencyService_Complete_FullMethodName, idemdv1.IdempotencyService_Fail_FullMethodName,
		idemdv1.IdempotencyService_Batch_FullMethodName:
		return access.Caller
	case idemdv1.IdempotencyService_Lookup_FullMethodName:
		return access.Caller | access.Resolver | access.Operator
	case idemdv1.OperatorService_Resolve_FullMethodName:
		if r, is := request.(*idemdv1.ResolveRequest); is && !r.GetBreakLease() {
			return access.Resolver | access.Operator
		}
	}
	return access.Operator
}

// wall keeps an identity to its tenants. A request without a tenant gets the identity's
// only one; those that have no key either are about all of its tenants, and stay as they
// are. The commands of a batch have a wall each.
func wall(identity *access.Identity, request any) *reservation.Error {
	about, is := request.(interface{ GetTenant() string })
	if !is {
		return nil
	}
	_, keyed := request.(addressed)
	if _, filters := request.(*idemdv1.ListAuditRequest); filters { // its key selects
		keyed = false
	}
	if !keyed && about.GetTenant() == "" {
		return nil
	}
	tenant, refusal := identity.Tenant(about.GetTenant())
	if refusal == nil && about.GetTenant() == "" {
		message := request.(proto.Message).ProtoReflect()
		message.Set(message.Descriptor().Fields().ByName("tenant"), protoreflect.ValueOfString(tenant))
	}
	return refusal
}

// visibleTo are the tenants that a call without one is about; nil = all.
func visibleTo(ctx context.Context) []string {
	identity := identityOf(ctx)
	if identity.AllTenants {
		return nil
	}
	return append([]string{}, identity.Tenants...)
}

//go:build unix

package idemgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// nowhere is a stream whose headers go nowhere.
type nowhere struct{}

func (nowhere) Method() string               { return unary }
func (nowhere) SetHeader(metadata.MD) error  { return nil }
func (nowhere) SendHeader(metadata.MD) error { return nil }
func (nowhere) SetTrailer(metadata.MD) error { return nil }

// What a guarded call costs above its two RPCs: the interceptor and the client, on a
// request and a response of 200 bytes.
func BenchmarkGuardedCall(b *testing.B) {
	client := guardtest.FreeClient()
	for name, headers := range map[string][]string{"plain": nil, "with a header": {"location"}} {
		b.Run(name, func(b *testing.B) {
			c := guarding(idemgrpc.Guard{})
			c.Headers = headers
			guard, err := idemgrpc.UnaryServerInterceptor(client, c)
			if err != nil {
				b.Fatal(err)
			}
			ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs(idemgrpc.KeyHeader, "order-1042"))
			ctx = grpc.NewContextWithServerTransportStream(ctx, nowhere{})
			request := &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 200)}}
			response := &testpb.SimpleResponse{Payload: &testpb.Payload{Body: make([]byte, 200)}}
			info := &grpc.UnaryServerInfo{FullMethod: unary}
			handler := func(ctx context.Context, _ any) (any, error) {
				if headers == nil {
					return response, nil
				}
				return response, grpc.SetHeader(ctx, metadata.Pairs("location", "/orders/1042"))
			}
			guardtest.Measure(b, func() {
				if got, err := guard(ctx, request, info, handler); err != nil || got.(proto.Message) != response {
					b.Fatal(got, err)
				}
			})
		})
	}
}

//go:build unix

package idemgrpc_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// granting is a connection that grants everything, at no cost.
type granting struct{ owned *idemdv1.ReserveResponse }

func (g granting) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if r, is := reply.(*idemdv1.ReserveResponse); is {
		r.Decision = g.owned.GetDecision()
	}
	return nil
}

func (g granting) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, nil
}

// nowhere is a stream whose headers go nowhere.
type nowhere struct{}

func (nowhere) Method() string               { return unary }
func (nowhere) SetHeader(metadata.MD) error  { return nil }
func (nowhere) SendHeader(metadata.MD) error { return nil }
func (nowhere) SetTrailer(metadata.MD) error { return nil }

// What a guarded call costs above its two RPCs: the interceptor and the client, on a
// request and a response of 200 bytes; "cpu-ns/op" is the CPU time of the whole process.
func BenchmarkGuardedCall(b *testing.B) {
	client := idem.New(granting{&idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: &idemdv1.Owned{
		Attempt: 1, Fence: 1, LeaseRemaining: durationpb.New(30 * time.Second),
	}}}}, idem.Options{Tenant: "acme"})
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
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if got, err := guard(ctx, request, info, handler); err != nil || got.(proto.Message) != response {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

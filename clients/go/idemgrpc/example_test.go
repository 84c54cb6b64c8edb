package idemgrpc_test

import (
	"context"
	"fmt"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
)

// A server whose handlers run once for each key. (It needs a daemon: idemd serve.)
func ExampleUnaryServerInterceptor() {
	conn, err := grpc.NewClient("127.0.0.1:7070",
		append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	client := idem.New(conn, idem.Options{Tenant: "shop", Namespace: "payments"})
	config := idemgrpc.Config{
		Methods: map[string]idemgrpc.Guard{
			testpb.TestService_UnaryCall_FullMethodName: {
				Validate: func(_ context.Context, request proto.Message) error {
					if request.(*testpb.SimpleRequest).GetPayload() == nil {
						return status.Error(codes.InvalidArgument, "nothing is ordered")
					}
					return nil
				},
			},
			testpb.TestService_EmptyCall_FullMethodName: {Mode: idem.Transactional, Need: idemgrpc.Optional},
		},
		Headers: []string{"location"},
		Observe: func(_ context.Context, e idemgrpc.Event) { log.Println(e.Method, e.Ending, e.Reason) },
	}
	guard, err := idemgrpc.UnaryServerInterceptor(client, config)
	if err != nil {
		log.Fatal(err)
	}
	_ = grpc.NewServer(grpc.ChainUnaryInterceptor(guard))
}

// Each call has a key, the same through its retries; what became of it is in the error.
func ExampleUnaryClientInterceptor() {
	keys, err := idemgrpc.UnaryClientInterceptor(idemgrpc.ClientConfig{
		Methods: []string{testpb.TestService_UnaryCall_FullMethodName},
	})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("127.0.0.1:8080",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(keys))
	if err != nil {
		log.Fatal(err)
	}
	ctx := idemgrpc.WithKey(context.Background(), "order-1042") // stored beside the order
	_, err = testpb.NewTestServiceClient(conn).UnaryCall(ctx, &testpb.SimpleRequest{})
	switch {
	case err != nil && idemgrpc.KeepKey(err):
		fmt.Println("repeat it with the same key:", err)
	case err != nil:
		fmt.Println("refused:", err)
	}
}

package idemgrpc_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

const (
	unary   = testpb.TestService_UnaryCall_FullMethodName
	empty   = testpb.TestService_EmptyCall_FullMethodName
	streams = testpb.TestService_StreamingOutputCall_FullMethodName
	check   = grpc_health_v1.Health_Check_FullMethodName
)

// shop is a service whose handlers a test writes. The server is a real one.
type shop struct {
	guardtest.Room[idemgrpc.Event]
	testpb.UnimplementedTestServiceServer
	grpc_health_v1.UnimplementedHealthServer

	// handle is what UnaryCall does; nil = it answers "receipt".
	handle func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error)

	conn *grpc.ClientConn
	api  testpb.TestServiceClient
}

func (s *shop) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.Ran.Add(1)
	if s.handle == nil {
		return receipt(), nil
	}
	return s.handle(ctx, r)
}

func (s *shop) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	s.Ran.Add(1)
	return &testpb.Empty{}, nil
}

func (s *shop) StreamingOutputCall(_ *testpb.StreamingOutputCallRequest, stream testpb.TestService_StreamingOutputCallServer) error {
	s.Ran.Add(1)
	return stream.Send(&testpb.StreamingOutputCallResponse{})
}

func (s *shop) Check(context.Context, *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	s.Ran.Add(1)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func receipt() *testpb.SimpleResponse { return &testpb.SimpleResponse{Username: "receipt"} }

// guarding is a configuration that guards UnaryCall.
func guarding(g idemgrpc.Guard) idemgrpc.Config {
	return idemgrpc.Config{Methods: map[string]idemgrpc.Guard{unary: g}}
}

// open serves a shop with a guard, on an idemd in memory, until the test ends.
func open(t testing.TB, c idemgrpc.Config, o idem.Options) *shop {
	t.Helper()
	s := &shop{}
	s.Open(t, o)
	if c.Observe == nil {
		c.Observe = func(_ context.Context, e idemgrpc.Event) { s.Events.Add(e) }
	}
	guard, err := idemgrpc.UnaryServerInterceptor(s.Client, c)
	if err != nil {
		t.Fatal(err)
	}
	s.conn = serve(t, s, grpc.ChainUnaryInterceptor(guard))
	s.api = testpb.NewTestServiceClient(s.conn)
	return s
}

// serve runs a server of the shop and connects to it.
func serve(t testing.TB, s *shop, o ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, listen(t, func(server *grpc.Server) {
		testpb.RegisterTestServiceServer(server, s)
		grpc_health_v1.RegisterHealthServer(server, s)
	}, o...))
}

// listen runs a server until the test ends.
func listen(t testing.TB, register func(*grpc.Server), o ...grpc.ServerOption) *bufconn.Listener {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(o...)
	register(server)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener
}

func dial(t testing.TB, listener *bufconn.Listener, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	conn, err := grpc.NewClient("passthrough:shop", o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answer is all that a caller gets.
type answer struct {
	response        *testpb.SimpleResponse
	header, trailer metadata.MD
	err             error
}

func (a *answer) replayed() bool { return len(a.header.Get(idemgrpc.ReplayedHeader)) == 1 }

// call calls UnaryCall under a key.
func (s *shop) call(t testing.TB, key string, r *testpb.SimpleRequest) *answer {
	t.Helper()
	return s.callIn(keyed(guardtest.Bounded(t), key), r)
}

func (s *shop) callIn(ctx context.Context, r *testpb.SimpleRequest) *answer {
	a := &answer{}
	a.response, a.err = s.api.UnaryCall(ctx, r, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	return a
}

// busy is once the first call under "k" is in its handler, which returns at the end.
func (s *shop) busy(t testing.TB) (end func() *answer) {
	t.Helper()
	started, over, first := make(chan struct{}), make(chan struct{}), make(chan *answer)
	s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		close(started)
		<-over
		return receipt(), nil
	}
	go func() { first <- s.call(t, "k", order(1)) }()
	<-started
	return func() *answer {
		close(over)
		return <-first
	}
}

func order(size int32) *testpb.SimpleRequest { return &testpb.SimpleRequest{ResponseSize: size} }

func keyed(ctx context.Context, keys ...string) context.Context {
	for _, key := range keys {
		ctx = metadata.AppendToOutgoingContext(ctx, idemgrpc.KeyHeader, key)
	}
	return ctx
}

// wantRefusal checks all that a guard's answer says.
func wantRefusal(t testing.TB, err error, code codes.Code, reason idemgrpc.Reason, keep bool) {
	t.Helper()
	if status.Code(err) != code || idemgrpc.ReasonOf(err) != reason || idemgrpc.KeepKey(err) != keep {
		t.Errorf("answered %v (%s, keep the key: %v), want %v (%s, %v)",
			err, idemgrpc.ReasonOf(err), idemgrpc.KeepKey(err), code, reason, keep)
	}
}

// wantEndings checks what Observe was told since the last time.
func (s *shop) wantEndings(t testing.TB, want ...idemgrpc.Ending) {
	t.Helper()
	got := s.Events.Take()
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i].Ending == want[i] && got[i].Method == unary
	}
	if !same {
		t.Errorf("observed %+v, want %v", got, want)
	}
}

package fault

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxMessageBytes bounds a message, as the daemon does.
const maxMessageBytes = 8 << 20

// Forward sends a call on to the server and returns its answer. It may be called any
// number of times, also at once.
type Forward func(ctx context.Context) (answer []byte, err error)

// Fault decides what becomes of one call of a method ("/idemd.v1.IdempotencyService/Reserve").
// A command in a batch is such a call. ctx ends with the caller.
type Fault func(ctx context.Context, method string, forward Forward) (answer []byte, err error)

// GRPC passes unary calls on to a server, whatever service they are of. Safe for use
// by several goroutines.
type GRPC struct {
	conn     *grpc.ClientConn
	server   *grpc.Server
	listener net.Listener

	mu    sync.Mutex
	fault Fault
	calls map[string]int
}

// NewGRPC starts a proxy in front of the server at an address. It does no harm until
// Break.
func NewGRPC(server string) (*GRPC, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(frames{}), grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	if err != nil {
		listener.Close()
		return nil, err
	}
	p := &GRPC{conn: conn, listener: listener, fault: harmless, calls: map[string]int{}}
	p.server = grpc.NewServer(grpc.ForceServerCodec(frames{}), grpc.UnknownServiceHandler(p.handle), grpc.MaxRecvMsgSize(maxMessageBytes))
	go func() { _ = p.server.Serve(listener) }()
	return p, nil
}

// Addr is where the proxy listens, host:port.
func (p *GRPC) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections.
func (p *GRPC) Close() {
	p.server.Stop()
	_ = p.conn.Close()
}

// Break lets the fault decide on every call from now on; nil ends it.
func (p *GRPC) Break(f Fault) {
	if f == nil {
		f = harmless
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// Calls tells how many calls of a method have come in, alone or as commands of batches.
func (p *GRPC) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

func harmless(ctx context.Context, _ string, forward Forward) ([]byte, error) { return forward(ctx) }

// ErrLost is what the caller sees of an answer that was lost with its connection.
func ErrLost() error { return status.Error(codes.Unavailable, "fault: the connection was cut") }

func (p *GRPC) handle(_ any, stream grpc.ServerStream) error {
	method, named := grpc.MethodFromServerStream(stream)
	if !named {
		return errors.New("fault: a call without a method")
	}
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	methods := methodsOf(method, request)
	p.mu.Lock()
	for _, m := range methods {
		p.calls[m]++
	}
	f := p.fault
	p.mu.Unlock()
	sent, _ := metadata.FromIncomingContext(stream.Context())
	answer, err := forEach(methods, f)(stream.Context(), func(ctx context.Context) ([]byte, error) {
		var answer []byte
		err := p.conn.Invoke(metadata.NewOutgoingContext(ctx, sent), method, &request, &answer, grpc.WaitForReady(true))
		return answer, err
	})
	if err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

// frames leaves messages as the bytes they are.
type frames struct{}

func (frames) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (frames) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// Name is the content subtype that callers send.
func (frames) Name() string { return "proto" }

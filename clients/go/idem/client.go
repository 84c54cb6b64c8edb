package idem

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Result is what is stored and replayed: the generated message, so that nothing is
// lost in between. Body up to [MaxBodyBytes], headers up to [MaxHeaderBytes].
type Result = idemdv1.Result

// Header is one header of a [Result].
type Header = idemdv1.Header

// Limits of the daemon that are worth knowing before the effect.
const (
	// MaxBodyBytes is the largest body that is kept; a larger one is given to the
	// first caller and replayed as omitted.
	MaxBodyBytes = 1 << 20
	// MaxHeaderBytes is how long names and values of headers may be together.
	MaxHeaderBytes = 16 << 10
	// MaxCheckpointBytes is the largest checkpoint.
	MaxCheckpointBytes = 16 << 10

	maxMessageBytes = 8 << 20
	maxOwnerBytes   = 128
	tokenBytes      = 16
)

// Client calls one idemd, or several on one store behind one connection. It may be used
// by many goroutines.
type Client struct {
	service    idemdv1.IdempotencyServiceClient
	operator   idemdv1.OperatorServiceClient
	options    Options
	log        *slog.Logger
	background *background
}

// Options adjust a client. The zero value will do.
type Options struct {
	// Tenant and Namespace are those of operations that name none.
	Tenant, Namespace string
	// Owner is a label for people that says which process asks: at most 128 bytes.
	// Default: host name and process id.
	Owner string
	// Patience is how long a call is repeated while the daemon is unavailable, if its
	// context lasts that long. Default 30 s.
	Patience time.Duration
	// FinishTimeout is how long Do waits for the outcome to be recorded. After that it
	// is told on in the background, for at most 2 minutes. Default 10 s.
	FinishTimeout time.Duration
	// NoBatches sends each call on its own. By default, calls that come while others are
	// under way are sent together; a lone one never waits. A batch is one call to
	// whatever stands on the connection (interceptors, tracing): its span is no child of
	// theirs. Calls with outgoing metadata of their own always go alone.
	NoBatches bool
	// Logger is told what an operator should know: leases lost, outcomes that could
	// not be recorded. Keys are in it, tokens and results are not. Default: silent.
	Logger *slog.Logger
	// Hooks are called for metrics.
	Hooks Hooks
}

// Address names a reservation.
type Address struct{ Tenant, Namespace, Key string }

// Address is where an operation's key belongs: what the operation does not name is the
// client's. An empty namespace is the daemon's default.
func (c *Client) Address(op Operation) Address {
	a := Address{Tenant: op.Tenant, Namespace: op.Namespace, Key: op.Key}
	if a.Tenant == "" {
		a.Tenant = c.options.Tenant
	}
	if a.Namespace == "" {
		a.Namespace = c.options.Namespace
	}
	return a
}

// Hooks are called when something went another way than planned. They must return
// quickly and be safe for use by many goroutines. Any may be nil.
type Hooks struct {
	// LeaseLost: an owner's context was cancelled while its function ran.
	LeaseLost func(Address, error)
	// Unrecorded: how an attempt ended could not be told to the daemon, for good.
	Unrecorded func(Address, error)
	// Reduced: something of a result was too large or invalid and is not kept; the error
	// is the refusal. It can come several times for one outcome.
	Reduced func(Address, error)
	// Withdrawn: a Reserve that ended without a definite answer was given up. The error
	// is nil if its key is certainly not held by it, now.
	Withdrawn func(Address, error)
}

// New makes a client on a connection, which stays the caller's: close the client
// first, then the connection.
func New(conn grpc.ClientConnInterface, o Options) *Client {
	if o.Owner == "" {
		o.Owner = defaultOwner()
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.FinishTimeout <= 0 {
		o.FinishTimeout = 10 * time.Second
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	service := idemdv1.NewIdempotencyServiceClient(conn)
	if !o.NoBatches {
		service = &coalescer{IdempotencyServiceClient: service}
	}
	return &Client{
		service:    service,
		operator:   idemdv1.NewOperatorServiceClient(conn),
		options:    o,
		log:        log,
		background: newBackground(),
	}
}

// DialOptions fit a connection to the daemon: message sizes, pings that it welcomes, and
// a reconnection that does not outlast a restart. Credentials are the caller's to add.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
}

// Close waits for what is still being told in the background, until ctx ends: then it
// is cut off and ctx's error returned. Call it after the last Do has returned.
func (c *Client) Close(ctx context.Context) error { return c.background.close(ctx) }

// NewToken makes an owner token: random bytes for one execution attempt.
func NewToken() []byte {
	token := make([]byte, tokenBytes)
	_, _ = rand.Read(token) // never fails: see crypto/rand
	return token
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	pid := fmt.Sprintf("/%d", os.Getpid())
	return host[:min(len(host), maxOwnerBytes-len(pid))] + pid
}

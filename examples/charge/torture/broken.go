package torture

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// What can be broken, to see that it is noticed.
const (
	// BrokenRepeat: clients take UNRESOLVED for "not executed".
	BrokenRepeat = "repeat"
	// BrokenNewKey: clients use a new key for each try.
	BrokenNewKey = "newkey"
	// BrokenAmnesia: the embedded store is empty after each kill.
	BrokenAmnesia = "amnesia"
	// BrokenExtend: clients don't extend their leases, and believe in them.
	BrokenExtend = "noextend"
	// BrokenWithdraw: clients don't give up a Reserve that got no answer.
	BrokenWithdraw = "nowithdraw"
	// BrokenLapse: the daemon lets leases lapse earlier than it says.
	BrokenLapse = "earlylapse"
	// BrokenReplay: of a stored result the body alone is replayed.
	BrokenReplay = "lossyreplay"
)

// Parts are all that can be broken.
func Parts() []string {
	return []string{
		BrokenRepeat, BrokenNewKey, BrokenAmnesia, BrokenExtend, BrokenWithdraw, BrokenLapse, BrokenReplay,
	}
}

// breaksCalls: what is broken are calls, by their kind. In a batch they would be whole.
func (c Config) breaksCalls() bool {
	switch c.Broken {
	case BrokenExtend, BrokenWithdraw, BrokenLapse, BrokenReplay:
		return true
	}
	return false
}

// earlier is how much too early leases lapse.
const earlier = 1500 * time.Millisecond

// leastLease is the shortest that the daemon takes. A withdrawal asks for it.
const leastLease = 100 * time.Millisecond

// detour is a connection that does something else with some calls.
type detour struct {
	grpc.ClientConnInterface
	invoke func(args, reply any, on func(args any) error) error
}

// Invoke implements grpc.ClientConnInterface.
func (d *detour) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	return d.invoke(args, reply, func(args any) error {
		return d.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	})
}

// connection is what a process calls the daemon on: noted by a tap, and broken if it
// shall be. What the daemon itself would have done is broken beneath the tap.
func (w *world) connection(conn grpc.ClientConnInterface) grpc.ClientConnInterface {
	if w.config.Broken == BrokenLapse {
		conn = &detour{conn, lapseEarlier}
	}
	conn = &tap{conn, w}
	switch w.config.Broken {
	case BrokenExtend:
		return &detour{conn, extendNothing}
	case BrokenWithdraw:
		return &detour{conn, withdrawNothing}
	case BrokenReplay:
		return &detour{conn, replayBodies}
	}
	return conn
}

func extendNothing(args, reply any, on func(any) error) error {
	request, is := args.(*idemdv1.ExtendRequest)
	if !is || request.GetLease().AsDuration() == leastLease {
		return on(args)
	}
	reply.(*idemdv1.ExtendResponse).LeaseRemaining = request.GetLease()
	return nil
}

func withdrawNothing(args, _ any, on func(any) error) error {
	request, is := args.(*idemdv1.ExtendRequest)
	if !is || request.GetLease().AsDuration() != leastLease {
		return on(args)
	}
	refused, err := status.New(codes.NotFound, "not looked for").WithDetails(
		&errdetails.ErrorInfo{Domain: "idemd", Reason: string(idem.ReservationNotFound)})
	if err != nil {
		return err
	}
	return refused.Err()
}

func replayBodies(args, reply any, on func(any) error) error {
	err := on(args)
	if response, is := reply.(*idemdv1.ReserveResponse); is && response.GetReplay() != nil {
		stored := response.GetReplay()
		stored.Result = &idem.Result{Body: stored.GetResult().GetBody()}
	}
	return err
}

func lapseEarlier(args, reply any, on func(any) error) error {
	longer := func(d *durationpb.Duration) *durationpb.Duration { return durationpb.New(d.AsDuration() + earlier) }
	shorter := func(d *durationpb.Duration) *durationpb.Duration {
		return durationpb.New(max(d.AsDuration()-earlier, leastLease))
	}
	switch request := args.(type) {
	case *idemdv1.ReserveRequest:
		request = proto.CloneOf(request)
		request.Lease = shorter(request.Lease)
		err := on(request)
		if granted := reply.(*idemdv1.ReserveResponse).GetOwned(); granted != nil {
			granted.LeaseRemaining = longer(granted.LeaseRemaining)
		}
		return err
	case *idemdv1.ExtendRequest:
		if request.GetLease().AsDuration() == leastLease {
			return on(args)
		}
		request = proto.CloneOf(request)
		request.Lease = shorter(request.Lease)
		err := on(request)
		if response := reply.(*idemdv1.ExtendResponse); err == nil {
			response.LeaseRemaining = longer(response.LeaseRemaining)
		}
		return err
	}
	return on(args)
}

// refusalIn reads an error of the daemon's: the reason is empty where it is not its own.
func refusalIn(err error) (code codes.Code, reason string) {
	s := status.Convert(err)
	for _, detail := range s.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetDomain() == "idemd" {
			reason = info.GetReason()
		}
	}
	return s.Code(), reason
}

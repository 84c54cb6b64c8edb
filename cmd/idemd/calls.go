package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// duration is unset where the flag is: the namespace's default.
func duration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

type reserveCmd struct {
	clientFlags
	addressFlags
	fingerprintFlags
	Token          string         `env:"IDEMD_OWNER_TOKEN" help:"Owner token of this attempt, in hex. Default: a random one, which is printed." placeholder:"HEX"`
	Lease          *time.Duration `help:"How long the owner may stay silent. Default: the namespace's (30s)."`
	Retention      *time.Duration `help:"How long the result is replayed. Default: the namespace's (168h)."`
	OnLapse        string         `enum:",hold,rerun" default:"" help:"What a lapse of the lease means: hold or rerun. Default: the namespace's (hold)."`
	Wait           *time.Duration `help:"How long to wait for a better answer than in progress."`
	Owner          string         `help:"Label of this caller, for people."`
	PolicyVersion  string         `help:"Business rules that the first attempt pins."`
	FirstAttemptAt time.Time      `help:"When the operation was first tried (RFC 3339)." placeholder:"TIME"`
}

// Run implements the command.
func (c *reserveCmd) Run(std streams) error {
	request, err := c.request()
	if err != nil {
		return err
	}
	return c.holding(c.Wait).dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := idemdv1.NewIdempotencyServiceClient(conn).Reserve(ctx, request)
		if err != nil {
			return lostToken(err, request.GetOwnerToken())
		}
		extra := fields{}
		if response.GetOwned() != nil {
			extra["owner_token"] = hex.EncodeToString(request.GetOwnerToken())
		}
		if err := show(std, c.Output, response, extra); err != nil {
			return err
		}
		return decisionCode(response)
	})
}

func (c *reserveCmd) request() (*idemdv1.ReserveRequest, error) {
	fingerprint, err := c.fingerprintFlags.message()
	if err != nil {
		return nil, err
	}
	token := newToken()
	if c.Token != "" {
		if token, err = decodeHex("--token", c.Token); err != nil {
			return nil, err
		}
	}
	request := &idemdv1.ReserveRequest{
		Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, Fingerprint: fingerprint, OwnerToken: token,
		Lease: duration(c.Lease), Retention: duration(c.Retention), Wait: duration(c.Wait),
		Owner: c.Owner, PolicyVersion: c.PolicyVersion,
	}
	switch c.OnLapse {
	case "hold":
		request.OnLapse = idemdv1.LapsePolicy_LAPSE_POLICY_HOLD
	case "rerun":
		request.OnLapse = idemdv1.LapsePolicy_LAPSE_POLICY_RERUN
	}
	if !c.FirstAttemptAt.IsZero() {
		request.FirstAttemptAt = timestamppb.New(c.FirstAttemptAt)
	}
	return request, nil
}

// lostToken adds the token to an error that leaves open whether it was granted: only
// with it the caller is let in again.
func lostToken(err error, token []byte) error {
	if codeFor(err) != exitUnavailable || refusedBefore(err) {
		return err
	}
	return fmt.Errorf("%w; it may have been granted: repeat with --token %s", err, hex.EncodeToString(token))
}

// refusedBefore: the daemon says that it has not looked at the call.
func refusedBefore(err error) bool {
	reason := reasonIn(status.Convert(err))
	return reason == "DRAINING" || reason == "OVERLOADED"
}

func decisionCode(response *idemdv1.ReserveResponse) error {
	switch response.GetDecision().(type) {
	case *idemdv1.ReserveResponse_InProgress:
		return answered(exitInProgress)
	case *idemdv1.ReserveResponse_Replay:
		return answered(exitReplay)
	case *idemdv1.ReserveResponse_Unresolved:
		return answered(exitUnresolved)
	}
	return nil
}

type extendCmd struct {
	clientFlags
	addressFlags
	tokenFlag
	Lease              *time.Duration `help:"The lease from now on. Default: the namespace's (30s)."`
	Checkpoint         string         `help:"Progress for the next attempt to go on from."`
	CheckpointSequence uint64         `help:"Order of the checkpoint among those of this attempt."`
}

// Run implements the command.
func (c *extendCmd) Run(std streams) error {
	token, err := c.bytes()
	if err != nil {
		return err
	}
	return call(c.clientFlags, std, idemdv1.NewIdempotencyServiceClient,
		idemdv1.IdempotencyServiceClient.Extend, &idemdv1.ExtendRequest{
			Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, OwnerToken: token, Lease: duration(c.Lease),
			Checkpoint: []byte(c.Checkpoint), CheckpointSequence: c.CheckpointSequence,
		})
}

type completeCmd struct {
	clientFlags
	addressFlags
	tokenFlag
	resultFlags
	Retention *time.Duration `help:"Lengthens the retention that reserve asked for."`
}

// Run implements the command.
func (c *completeCmd) Run(std streams) error {
	token, err := c.bytes()
	if err != nil {
		return err
	}
	result, err := c.message(std.in)
	if err != nil {
		return err
	}
	return call(c.clientFlags, std, idemdv1.NewIdempotencyServiceClient,
		idemdv1.IdempotencyServiceClient.Complete, &idemdv1.CompleteRequest{
			Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, OwnerToken: token, Result: result,
			Retention: duration(c.Retention),
		})
}

type failCmd struct {
	clientFlags
	addressFlags
	tokenFlag
	resultFlags
	Kind       string         `required:"" enum:"retryable,final,unknown" help:"What is known: retryable (certainly not executed), final (refused for good) or unknown (may have happened)."`
	RetryAfter *time.Duration `help:"When the next attempt may start, from now."`
	Retention  *time.Duration `help:"Lengthens the retention that reserve asked for."`
}

// Run implements the command.
func (c *failCmd) Run(std streams) error {
	token, err := c.bytes()
	if err != nil {
		return err
	}
	result, err := c.message(std.in)
	if err != nil {
		return err
	}
	kind := map[string]idemdv1.FailureKind{
		"retryable": idemdv1.FailureKind_FAILURE_KIND_RETRYABLE,
		"final":     idemdv1.FailureKind_FAILURE_KIND_FINAL,
		"unknown":   idemdv1.FailureKind_FAILURE_KIND_UNKNOWN,
	}[c.Kind]
	return call(c.clientFlags, std, idemdv1.NewIdempotencyServiceClient,
		idemdv1.IdempotencyServiceClient.Fail, &idemdv1.FailRequest{
			Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, OwnerToken: token, Kind: kind, Result: result,
			RetryAfter: duration(c.RetryAfter), Retention: duration(c.Retention),
		})
}

type lookupCmd struct {
	clientFlags
	addressFlags
	Wait *time.Duration `help:"How long to wait until the operation has finished."`
}

// Run implements the command.
func (c *lookupCmd) Run(std streams) error {
	return c.holding(c.Wait).dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := idemdv1.NewIdempotencyServiceClient(conn).Lookup(ctx, &idemdv1.LookupRequest{
			Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, Wait: duration(c.Wait),
		})
		switch {
		case err != nil:
			return err
		case c.Output == "json":
			return show(std, c.Output, response, nil)
		}
		entries := response.GetReservation().GetHistory()
		response.Reservation.History = nil // a table of its own
		if err := show(std, c.Output, response, nil); err != nil {
			return err
		}
		return history(std.out, entries, response.GetReservation().GetHistoryDropped())
	})
}

type resolveCmd struct {
	clientFlags
	addressFlags
	resultFlags
	ExpectedVersion int64  `required:"" help:"The version that the verdict is about, as lookup shows it."`
	Verdict         string `required:"" enum:"succeeded,failed-final,not-executed" help:"What was found out: succeeded, failed-final or not-executed."`
	Reason          string `required:"" help:"Why; kept in the history."`
	Evidence        string `help:"What the verdict rests on; kept in the history."`
	BreakLease      bool   `help:"Also where an owner is still at work."`
}

// Run implements the command.
func (c *resolveCmd) Run(std streams) error {
	request := &idemdv1.ResolveRequest{
		Tenant: c.Tenant, Namespace: c.Namespace, Key: c.Key, ExpectedVersion: c.ExpectedVersion,
		Reason: c.Reason, Evidence: c.Evidence, BreakLease: c.BreakLease,
		Verdict: map[string]idemdv1.Verdict{
			"succeeded":    idemdv1.Verdict_VERDICT_SUCCEEDED,
			"failed-final": idemdv1.Verdict_VERDICT_FAILED_FINAL,
			"not-executed": idemdv1.Verdict_VERDICT_NOT_EXECUTED,
		}[c.Verdict],
	}
	if request.GetVerdict() != idemdv1.Verdict_VERDICT_NOT_EXECUTED || c.given() {
		result, err := c.message(std.in)
		if err != nil {
			return err
		}
		request.Result = result
	}
	return call(c.clientFlags, std, idemdv1.NewOperatorServiceClient, idemdv1.OperatorServiceClient.Resolve, request)
}

// call makes one RPC and prints its response.
func call[Client any, Request any, Response proto.Message](
	f clientFlags, std streams, connect func(grpc.ClientConnInterface) Client,
	method func(Client, context.Context, Request, ...grpc.CallOption) (Response, error), request Request,
) error {
	return f.dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := method(connect(conn), ctx, request)
		if err != nil {
			return err
		}
		return show(std, f.Output, response, nil)
	})
}

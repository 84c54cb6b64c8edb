package grpcserver

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/reservation"
)

func reserving(r *idemdv1.ReserveRequest) *idemdv1.BatchCommand {
	return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Reserve{Reserve: r}}
}

func completing(r *idemdv1.CompleteRequest) *idemdv1.BatchCommand {
	return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Complete{Complete: r}}
}

func lookingUp(r *idemdv1.LookupRequest) *idemdv1.BatchCommand {
	return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Lookup{Lookup: r}}
}

// single makes the command's own call, and gives its answer the form that it has in a
// batch.
func (f *fixture) single(t *testing.T, c *idemdv1.BatchCommand) *idemdv1.BatchOutcome {
	t.Helper()
	ctx := t.Context()
	var err error
	outcome := &idemdv1.BatchOutcome{}
	switch is := c.GetCommand().(type) {
	case *idemdv1.BatchCommand_Reserve:
		o := &idemdv1.BatchOutcome_Reserve{}
		o.Reserve, err = f.Reserve(ctx, is.Reserve)
		outcome.Outcome = o
	case *idemdv1.BatchCommand_Extend:
		o := &idemdv1.BatchOutcome_Extend{}
		o.Extend, err = f.Extend(ctx, is.Extend)
		outcome.Outcome = o
	case *idemdv1.BatchCommand_Complete:
		o := &idemdv1.BatchOutcome_Complete{}
		o.Complete, err = f.Complete(ctx, is.Complete)
		outcome.Outcome = o
	case *idemdv1.BatchCommand_Fail:
		o := &idemdv1.BatchOutcome_Fail{}
		o.Fail, err = f.Fail(ctx, is.Fail)
		outcome.Outcome = o
	case *idemdv1.BatchCommand_Lookup:
		o := &idemdv1.BatchOutcome_Lookup{}
		o.Lookup, err = f.Lookup(ctx, is.Lookup)
		outcome.Outcome = o
	}
	if err != nil {
		return refused(err)
	}
	return outcome
}

// randomCommand is one of any kind, often wrong, about one of few keys.
func randomCommand(rng *rand.Rand) *idemdv1.BatchCommand {
	key := []string{"a", "a", "a", "b", "b", "c", "not a key"}[rng.IntN(7)]
	owner := token(byte(1 + rng.IntN(3)))
	result := &idemdv1.Result{Status: int32(rng.IntN(2)), Body: []byte("body")}
	switch rng.IntN(5) {
	case 0:
		r := reserveRequest(key, byte(1+rng.IntN(3)))
		r.Fingerprint.Digest[0] = byte(rng.IntN(8) / 7)
		if rng.IntN(2) == 0 {
			r.OnLapse = idemdv1.LapsePolicy_LAPSE_POLICY_RERUN
		}
		return reserving(r)
	case 1:
		return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Extend{Extend: &idemdv1.ExtendRequest{
			Tenant: "acme", Key: key, OwnerToken: owner, Checkpoint: []byte("half"), CheckpointSequence: uint64(rng.IntN(3)),
		}}}
	case 2:
		return completing(&idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: owner, Result: result})
	case 3:
		return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Fail{Fail: &idemdv1.FailRequest{
			Tenant: "acme", Key: key, OwnerToken: owner, Kind: idemdv1.FailureKind(rng.IntN(4)), Result: result,
		}}}
	}
	return lookingUp(&idemdv1.LookupRequest{Tenant: "acme", Key: key})
}

func TestABatchAnswersEachCommandAsItsOwnCallWould(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	seen := make(map[string]int)
	for range 50 {
		together, alone := serve(t, nil), serve(t, nil) // their clocks stand still, at the same time
		for range 5 {
			request := &idemdv1.BatchRequest{}
			for range 1 + rng.IntN(20) {
				request.Commands = append(request.Commands, randomCommand(rng))
			}
			response, err := together.Batch(t.Context(), request)
			if err != nil || len(response.GetOutcomes()) != len(request.GetCommands()) {
				t.Fatalf("%d outcomes of %d commands, %v", len(response.GetOutcomes()), len(request.GetCommands()), err)
			}
			for i, c := range request.GetCommands() {
				got, want := response.GetOutcomes()[i], alone.single(t, c)
				if !proto.Equal(got, want) {
					t.Fatalf("%v\nis answered in a batch %v\nalone            %v", c, got, want)
				}
				_, reason, _, _ := explained(t, status.FromProto(&spb.Status{
					Code: got.GetError().GetCode(), Details: got.GetError().GetDetails(),
				}).Err())
				seen[fmt.Sprintf("%T %T %s", got.GetOutcome(), got.GetReserve().GetDecision(), reason)]++
			}
			step := time.Duration(rng.IntN(3)) * reservation.DefaultLease / 2
			together.harness.Advance(step)
			alone.harness.Advance(step)
		}
	}
	if len(seen) < 12 {
		t.Errorf("only %v was answered", seen)
	}
}

func TestABatchThatIsNoneIsRefusedAndNothingOfItIsDone(t *testing.T) {
	f := serve(t, nil)
	good := reserving(reserveRequest("k", 1))
	large := &idemdv1.CompleteRequest{Tenant: "acme", Key: "k", OwnerToken: token(1), Result: &idemdv1.Result{Body: make([]byte, reservation.MaxBodyBytes)}}
	for name, request := range map[string]*idemdv1.BatchRequest{
		"no commands":            {},
		"1,001 commands":         {Commands: slicesRepeat(good, maxBatchCommands+1)},
		"more than 4 MiB":        {Commands: append(slicesRepeat(completing(large), 4), good)},
		"a command that is none": {Commands: []*idemdv1.BatchCommand{good, {}}},
	} {
		_, err := f.Batch(t.Context(), request)
		if code, reason, _, _ := explained(t, err); code != codes.InvalidArgument || reason != "BATCH_INVALID" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "k"}); status.Code(err) != codes.NotFound {
		t.Errorf("something is stored: %v", err)
	}
	if _, err := f.Batch(t.Context(), &idemdv1.BatchRequest{Commands: slicesRepeat(good, maxBatchCommands)}); err != nil {
		t.Errorf("1,000 commands: %v", err)
	}
}

func slicesRepeat(c *idemdv1.BatchCommand, n int) (commands []*idemdv1.BatchCommand) {
	for range n {
		commands = append(commands, c)
	}
	return commands
}

func TestWhatDoesNotFitIntoABatchsAnswerIsToldToComeAgain(t *testing.T) {
	const keys = 6
	f := serve(t, nil)
	request := &idemdv1.BatchRequest{}
	for i := range keys {
		key := fmt.Sprint("k", i)
		if _, err := f.Reserve(t.Context(), reserveRequest(key, 1)); err != nil {
			t.Fatal(err)
		}
		result := &idemdv1.Result{Body: make([]byte, reservation.MaxBodyBytes)}
		if _, err := f.Complete(t.Context(), &idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: token(1), Result: result}); err != nil {
			t.Fatal(err)
		}
		request.Commands = append(request.Commands, reserving(reserveRequest(key, 2)), lookingUp(&idemdv1.LookupRequest{Tenant: "acme", Key: "missing"}))
	}
	rounds := 0
	for ; len(request.GetCommands()) > 0; rounds++ {
		response, err := f.Batch(t.Context(), request, grpc.MaxCallRecvMsgSize(4<<20))
		if err != nil {
			t.Fatal(err)
		}
		again := &idemdv1.BatchRequest{}
		for i, outcome := range response.GetOutcomes() {
			if code := codes.Code(outcome.GetError().GetCode()); code == codes.Unavailable {
				again.Commands = append(again.Commands, request.GetCommands()[i])
			} else if outcome.GetReserve().GetReplay() == nil && code != codes.NotFound {
				t.Errorf("answered %v", outcome)
			}
		}
		if len(again.GetCommands()) == len(request.GetCommands()) {
			t.Fatal("nothing fits")
		}
		request = again
	}
	if rounds != 2 {
		t.Errorf("it took %d batches for 6 MiB", rounds)
	}
}

func TestNothingInABatchWaits(t *testing.T) {
	f := serve(t, nil)
	held := reserveRequest("k", 1)
	waiting := reserveRequest("k", 2)
	waiting.Wait = durationpb.New(reservation.MaxWait)
	response, err := f.Batch(t.Context(), &idemdv1.BatchRequest{Commands: []*idemdv1.BatchCommand{
		reserving(held), reserving(waiting),
		lookingUp(&idemdv1.LookupRequest{Tenant: "acme", Key: "k", Wait: durationpb.New(reservation.MaxWait)}),
	}})
	if err != nil || response.GetOutcomes()[1].GetReserve().GetInProgress() == nil || response.GetOutcomes()[2].GetLookup() == nil {
		t.Errorf("%v, %v", response, err)
	}
}

package grpcserver

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/reservation"
)

// A done operation whose answer is too big, at every size: it is refused with a way out,
// and with it the operation never runs again.
func TestAResultThatIsTooBigIsCompletedWithoutItsBody(t *testing.T) {
	f := serve(t, nil)
	const mib = 1 << 20
	for _, size := range []int{mib + 1, 39 * mib / 10, 4 * mib, 41 * mib / 10, MaxMessageBytes - 1024, 16 * mib, 64 * mib} {
		key := "k-" + strconv.Itoa(size)
		if _, err := f.Reserve(t.Context(), reserveRequest(key, 1)); err != nil {
			t.Fatal(err)
		}
		complete := &idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: token(1), Result: &idemdv1.Result{Body: make([]byte, size)}}
		_, err := f.Complete(t.Context(), complete)
		if code, reason, _, _ := explained(t, err); code != codes.ResourceExhausted || size < MaxMessageBytes && reason != string(reservation.ResultTooLarge) {
			t.Errorf("%d bytes: %v %s (%v)", size, code, reason, err)
		}
		complete.Result = &idemdv1.Result{BodyOmitted: true, BodyRef: "s3://answers/1"}
		if _, err := f.Complete(t.Context(), complete); err != nil {
			t.Errorf("%d bytes, without its body: %v", size, err)
		}
		again, err := f.Reserve(t.Context(), reserveRequest(key, 2))
		if err != nil || !again.GetReplay().GetResult().GetBodyOmitted() || again.GetReplay().GetResult().GetBodyRef() == "" {
			t.Errorf("%d bytes: a retry is answered %v (%v)", size, again, err)
		}
	}
}

// The largest record there can be fits in what clients take if nobody tells them more.
func TestEveryAnswerFitsInAClientsDefaultLimit(t *testing.T) {
	const defaultLimit = 4 << 20
	f := serve(t, nil)
	ctx := t.Context()
	const key = "largest"
	if _, err := f.Reserve(ctx, reserveRequest(key, 1)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Extend(ctx, &idemdv1.ExtendRequest{Tenant: "acme", Key: key, OwnerToken: token(1), Checkpoint: make([]byte, reservation.MaxCheckpointBytes), CheckpointSequence: 1})
	if err != nil {
		t.Fatal(err)
	}
	verdict := &idemdv1.ResolveRequest{
		Tenant: "acme", Key: key, Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, BreakLease: true,
		Reason: strings.Repeat("r", 512), Evidence: strings.Repeat("e", 1024),
	}
	for n := byte(2); n < 60; n++ { // more verdicts and evidence than are kept
		looked, err := f.Lookup(ctx, &idemdv1.LookupRequest{Tenant: "acme", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		verdict.ExpectedVersion = looked.GetReservation().GetVersion()
		if _, err := f.operator.Resolve(ctx, verdict); err != nil {
			t.Fatal(err)
		}
		_, _ = f.Complete(ctx, &idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: token(n + 100)})
		if _, err := f.Reserve(ctx, reserveRequest(key, n)); err != nil {
			t.Fatal(err)
		}
	}
	result := &idemdv1.Result{Body: make([]byte, reservation.MaxBodyBytes)}
	for range reservation.MaxHeaders {
		result.Headers = append(result.Headers, &idemdv1.Header{Name: "h", Value: bytes.Repeat([]byte{1}, 255)})
	}
	if _, err := f.Complete(ctx, &idemdv1.CompleteRequest{Tenant: "acme", Key: key, OwnerToken: token(59), Result: result}); err != nil {
		t.Fatal(err)
	}
	limited := grpc.MaxCallRecvMsgSize(defaultLimit)
	looked, err := f.Lookup(ctx, &idemdv1.LookupRequest{Tenant: "acme", Key: key}, limited)
	if err != nil || len(looked.GetReservation().GetHistory()) != 24+8 {
		t.Errorf("looked up %d entries of history (%v)", len(looked.GetReservation().GetHistory()), err)
	}
	if replay, err := f.Reserve(ctx, reserveRequest(key, 99), limited); err != nil || len(replay.GetReplay().GetResult().GetBody()) != reservation.MaxBodyBytes {
		t.Errorf("replayed %v", err)
	}
}

// How long a caller waits for its call says nothing about how long its work takes.
func TestALeaseIsTheCallersWhateverItsCallsDeadline(t *testing.T) {
	f := serve(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	request := reserveRequest("k", 1)
	request.Lease = durationpb.New(time.Hour)
	owned, err := f.Reserve(ctx, request)
	cancel()
	if err != nil || owned.GetOwned().GetLeaseRemaining().AsDuration() != time.Hour {
		t.Errorf("got %v (%v)", owned, err)
	}
	f.harness.Advance(time.Hour - time.Microsecond)
	if other, err := f.Reserve(t.Context(), reserveRequest("k", 2)); err != nil || other.GetInProgress() == nil {
		t.Errorf("got %v (%v)", other, err)
	}
}

// Owner tokens go one way: nothing the daemon says holds one.
func TestNoAnswerHasAFieldForAnOwnerToken(t *testing.T) {
	services := idemdv1.File_idemd_v1_idemd_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for m := range methods.Len() {
			walk(methods.Get(m).Output(), map[protoreflect.FullName]bool{}, func(field protoreflect.FieldDescriptor) {
				if strings.Contains(string(field.Name()), "token") && field.Name() != "token_digest" && field.Name() != "next_page_token" {
					t.Errorf("the answer of %s has %s", methods.Get(m).FullName(), field.FullName())
				}
			})
		}
	}
	if services.Len() == 0 {
		t.Error("no service was looked at")
	}
}

func walk(message protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, each func(protoreflect.FieldDescriptor)) {
	if seen[message.FullName()] {
		return
	}
	seen[message.FullName()] = true
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		each(field)
		if field.Message() != nil {
			walk(field.Message(), seen, each)
		}
	}
}

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestALostAnswerToReserveLetsItsCallerInAndNobodyElse(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		proxy := harness.GRPC(t, d.GRPC)
		client, ctx := dial(t, proxy.Addr()), harness.Bounded(t)
		token := newToken()
		proxy.Break(fault.Times(1, fault.On(reserveMethod, fault.LoseAnswer)))
		if _, err := client.Reserve(ctx, reserving(token)); status.Code(err) != codes.Unavailable {
			t.Fatalf("answered %v: the answer was to be lost", err)
		}
		other, err := client.Reserve(ctx, reserving(newToken()))
		if err != nil || other.GetInProgress() == nil {
			t.Errorf("somebody else is answered %v, %v", other, err)
		}
		if again := client.own(t, reserving(token)); !again.GetRepeated() || again.GetAttempt() != 1 {
			t.Errorf("the caller itself is answered %v", again)
		}
	})
}

// retryPolicy has gRPC itself repeat every call that ends UNAVAILABLE.
const retryPolicy = `{"methodConfig": [{"name": [{"service": "idemd.v1.IdempotencyService"}], "waitForReady": true,
  "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// The daemon commits, dies, and its answer is lost; gRPC repeats the call on the daemon
// that comes after it.
func TestACallThatGRPCRepeatsAfterTheDaemonDiedIsAnsweredAsTheFirst(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		proxy := harness.GRPC(t, d.GRPC)
		client, ctx := dial(t, proxy.Addr(), grpc.WithDefaultServiceConfig(retryPolicy)), harness.Bounded(t)
		dies := func(method string) {
			proxy.Break(fault.Times(1, fault.On(method, func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
				_, err := fault.LoseAnswer(ctx, method, forward)
				d.Kill()
				harness.Restart(t, d)
				return nil, err
			})))
		}
		token := newToken()
		dies(reserveMethod)
		if owned := client.own(t, reserving(token)); !owned.GetRepeated() || owned.GetAttempt() != 1 {
			t.Errorf("the repeated Reserve is answered %v", owned)
		}
		dies(failMethod)
		if failed, err := client.Fail(ctx, failing(token, idemdv1.FailureKind_FAILURE_KIND_UNKNOWN)); err != nil || !failed.GetRepeated() {
			t.Errorf("the repeated Fail is answered %v, %v", failed, err)
		}
		dies(completeMethod)
		if completed, err := client.Complete(ctx, completing(token, "done")); err != nil || !completed.GetRepeated() {
			t.Errorf("the repeated Complete is answered %v, %v", completed, err)
		}
		_, err := client.Complete(ctx, completing(token, "something else"))
		wantReason(t, err, "ALREADY_FINISHED")
		for method, want := range map[string]int{reserveMethod: 2, failMethod: 2, completeMethod: 3} {
			if got := proxy.Calls(method); got != want {
				t.Errorf("%s was called %d times, want %d: the test proves nothing", method, got, want)
			}
		}
	})
}

// A hedged call arrives several times at once, with one token.
func TestAHedgedCallIsOneCall(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		proxy := harness.GRPC(t, house.Serve(t, s).GRPC)
		proxy.Break(fault.Twice)
		client, ctx := dial(t, proxy.Addr()), harness.Bounded(t)
		token := newToken()
		var hedges sync.WaitGroup
		answers := make([]*idemdv1.ReserveResponse, 3)
		for i := range answers {
			hedges.Go(func() {
				var err error
				if answers[i], err = client.Reserve(ctx, reserving(token)); err != nil {
					t.Error(err)
				}
			})
		}
		hedges.Wait()
		for _, answer := range answers {
			if got := answer.GetOwned(); got.GetAttempt() != 1 || got.GetFence() != answers[0].GetOwned().GetFence() {
				t.Errorf("a hedge is answered %v, another one %v", answer, answers[0])
			}
		}
		if _, err := client.Complete(ctx, completing(token, "done")); err != nil {
			t.Error(err)
		}
		record := client.lookup(t, "k")
		if record.GetState() != idemdv1.State_STATE_SUCCEEDED || record.GetAttempt() != 1 || len(record.GetHistory()) > 0 {
			t.Errorf("stored is %v", record)
		}
	})
}

// The duplicate of a Reserve comes when the attempt is over.
func TestADuplicateThatComesLateStartsNothing(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		client, ctx := dial(t, house.Serve(t, s).GRPC), harness.Bounded(t)
		token := newToken()
		client.own(t, reserving(token))
		if _, err := client.Fail(ctx, failing(token, idemdv1.FailureKind_FAILURE_KIND_RETRYABLE)); err != nil {
			t.Fatal(err)
		}
		_, err := client.Reserve(ctx, reserving(token))
		wantReason(t, err, "TOKEN_SPENT")
		if record := client.lookup(t, "k"); record.GetState() != idemdv1.State_STATE_FAILED_RETRYABLE {
			t.Errorf("stored is %v", record)
		}
	})
}

func TestWhoeverLostTheAnswerToCompleteCanLookItUp(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		proxy := harness.GRPC(t, house.Serve(t, s).GRPC)
		client, ctx := dial(t, proxy.Addr()), harness.Bounded(t)
		token := newToken()
		client.own(t, reserving(token))
		proxy.Break(fault.On(completeMethod, fault.LoseAnswer))
		request := completing(token, `{"receipt": 1}`)
		if _, err := client.Complete(ctx, request); status.Code(err) != codes.Unavailable {
			t.Fatalf("answered %v: the answer was to be lost", err)
		}
		record := client.lookup(t, "k")
		if record.GetState() != idemdv1.State_STATE_SUCCEEDED || !proto.Equal(record.GetResult(), request.GetResult()) {
			t.Errorf("found is %v", record)
		}
		reserved, finished, expires := record.GetReservedAt().AsTime(), record.GetFinishedAt().AsTime(), record.GetExpiresAt().AsTime()
		if reserved.IsZero() || finished.Before(reserved) || !expires.After(finished) {
			t.Errorf("reserved %v, finished %v, expires %v", reserved, finished, expires)
		}
	})
}

// PostgreSQL commits and the daemon never hears of it.
func TestALostAnswerToCommitIsNotTheCallersConcern(t *testing.T) {
	server := house.Postgres.Server(t)
	database := server.Database(t, "")
	proxy := harness.TCP(t, server.Address())
	d := house.Serve(t, harness.OnServer("postgres://postgres@"+proxy.Addr()+"/"+database+"?sslmode=disable"))
	client, ctx := dial(t, d.GRPC), harness.Bounded(t)

	readyForQuery := []byte{'Z', 0, 0, 0, 5, 'I'} // outside of a transaction
	request := reserving(newToken())
	request.Key = "the-key-whose-answers-are-lost"
	lost := proxy.LoseAnswer([]byte(request.Key), readyForQuery)
	if owned := client.own(t, request); owned.GetAttempt() != 1 {
		t.Errorf("Reserve is answered %v", owned)
	}
	harness.Await(t, "the loss of the answer", lost)
	completion := completing(request.GetOwnerToken(), "done")
	completion.Key = request.Key
	lost = proxy.LoseAnswer([]byte(request.Key), readyForQuery)
	if _, err := client.Complete(ctx, completion); err != nil {
		t.Errorf("Complete is answered %v", err)
	}
	harness.Await(t, "the loss of the answer", lost)
	record := client.lookup(t, request.Key)
	if record.GetState() != idemdv1.State_STATE_SUCCEEDED || record.GetAttempt() != 1 || len(record.GetHistory()) > 0 {
		t.Errorf("stored is %v", record)
	}
}

func TestADatabaseThatIsSlowAndThenCutOffLosesNothing(t *testing.T) {
	server := house.Postgres.Server(t)
	database := server.Database(t, "")
	proxy := harness.TCP(t, server.Address())
	d := house.Serve(t, harness.OnServer("postgres://postgres@"+proxy.Addr()+"/"+database+"?sslmode=disable"))
	client, ctx := dial(t, d.GRPC), harness.Bounded(t)
	token := newToken()
	proxy.Delay(50 * time.Millisecond)
	client.own(t, reserving(token))
	proxy.Delay(0)
	proxy.Cut()
	_, err := client.Complete(ctx, completing(token, "done"))
	wantReason(t, err, "STORE_UNAVAILABLE")
	proxy.Restore()
	harness.Until(t, "the database to be found again", func() bool {
		_, err = client.Complete(ctx, completing(token, "done"))
		return reason(err) != "STORE_UNAVAILABLE"
	})
	if err != nil {
		t.Error(err)
	}
	if record := client.lookup(t, "k"); record.GetState() != idemdv1.State_STATE_SUCCEEDED {
		t.Errorf("stored is %v", record)
	}
}

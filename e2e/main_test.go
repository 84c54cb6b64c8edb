package e2e

import (
	"crypto/rand"
	"os"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

var house harness.House

func TestMain(m *testing.M) {
	if addr := os.Getenv(ownerVariable); addr != "" {
		os.Exit(ownForEver(addr))
	}
	os.Exit(house.Run(m))
}

const (
	reserveMethod  = idemdv1.IdempotencyService_Reserve_FullMethodName
	extendMethod   = idemdv1.IdempotencyService_Extend_FullMethodName
	completeMethod = idemdv1.IdempotencyService_Complete_FullMethodName
	failMethod     = idemdv1.IdempotencyService_Fail_FullMethodName
)

// api is the daemon's API as the generated code has it.
type api struct {
	idemdv1.IdempotencyServiceClient
	idemdv1.OperatorServiceClient
}

func dial(t *testing.T, addr string, options ...grpc.DialOption) api {
	t.Helper()
	conn := harness.Dial(t, addr, options...)
	return api{idemdv1.NewIdempotencyServiceClient(conn), idemdv1.NewOperatorServiceClient(conn)}
}

func newToken() []byte {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	return token
}

// reserving asks for the key "k" of tenant acme, with a lease that no test outlives.
func reserving(token []byte) *idemdv1.ReserveRequest {
	return &idemdv1.ReserveRequest{
		Tenant: "acme", Key: "k", OwnerToken: token, Lease: durationpb.New(time.Hour),
		Fingerprint: &idemdv1.Fingerprint{Scheme: "test-v1", Digest: make([]byte, 32)},
	}
}

// rerunning is reserving for an effect that is safe to repeat.
func rerunning(token []byte, lease time.Duration) *idemdv1.ReserveRequest {
	r := reserving(token)
	r.OnLapse, r.Lease = idemdv1.LapsePolicy_LAPSE_POLICY_RERUN, durationpb.New(lease)
	return r
}

func completing(token []byte, body string) *idemdv1.CompleteRequest {
	return &idemdv1.CompleteRequest{Tenant: "acme", Key: "k", OwnerToken: token, Result: &idemdv1.Result{Body: []byte(body)}}
}

func failing(token []byte, kind idemdv1.FailureKind) *idemdv1.FailRequest {
	return &idemdv1.FailRequest{Tenant: "acme", Key: "k", OwnerToken: token, Kind: kind}
}

// own reserves and demands to be granted.
func (a api) own(t *testing.T, request *idemdv1.ReserveRequest) *idemdv1.Owned {
	t.Helper()
	answer, err := a.Reserve(harness.Bounded(t), request)
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetOwned() == nil {
		t.Fatalf("not granted: %v", answer)
	}
	return answer.GetOwned()
}

// takeOver asks with fresh tokens until the attempt before has lapsed, and tells how
// often it was refused before.
func (a api) takeOver(t *testing.T, lease time.Duration) (owned *idemdv1.Owned, token []byte, refused int) {
	t.Helper()
	token = newToken()
	harness.Until(t, "the lapse", func() bool {
		answer, err := a.Reserve(harness.Bounded(t), rerunning(token, lease))
		if err != nil {
			t.Fatal(err)
		}
		if owned = answer.GetOwned(); owned == nil {
			refused++
		}
		return owned != nil
	})
	return owned, token, refused
}

func (a api) lookup(t *testing.T, key string) *idemdv1.Reservation {
	t.Helper()
	answer, err := a.Lookup(harness.Bounded(t), &idemdv1.LookupRequest{Tenant: "acme", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetReservation()
}

// reason is what an error says to be branched on; "" where there is none.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return info.GetReason()
		}
	}
	return ""
}

func wantReason(t *testing.T, err error, want string) {
	t.Helper()
	if got := reason(err); got != want {
		t.Errorf("answered %v, want the reason %s", err, want)
	}
}

// timestampIn is now, moved by a duration.
func timestampIn(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(d)) }

package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Both are asked for far more than there is. Once they have heard of each other, together
// they grant what the rate says, and not twice that.
func TestTwoDaemonsOnOneDatabaseKeepOneRate(t *testing.T) {
	const rate, warm, seconds = 50, 4, 4
	config := write(t, t.TempDir(), "idemd.yaml", []byte(fmt.Sprintf("tenants: {acme: {quotas: {rate: %d, burst: 1}}}", rate)))
	flags := slices.Concat(backends(t)[1].flags, []string{"--config", config})
	var callers sync.WaitGroup
	var granted, refused atomic.Int64
	daemons := []*client{dial(t, serve(t, flags...).grpc), dial(t, serve(t, flags...).grpc)}
	ctx, counts := bounded(t), time.Now().Add(warm*time.Second)
	over := counts.Add(seconds * time.Second)
	for n := range 8 {
		callers.Go(func() {
			for i := 0; time.Now().Before(over); i++ {
				_, err := daemons[n%2].Reserve(ctx, &idemdv1.ReserveRequest{
					Tenant: "acme", Key: fmt.Sprintf("k-%d-%d", n, i), OwnerToken: randomToken(), Fingerprint: fingerprint(),
				})
				switch {
				case err == nil && time.Now().After(counts):
					granted.Add(1)
				case err == nil:
				case status.Code(err) == codes.ResourceExhausted && reasonOf(err) == "RATE_LIMITED":
					refused.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	t.Logf("granted %d, refused %d", granted.Load(), refused.Load())
	if most := int64(rate * seconds * 3 / 2); granted.Load() > most {
		t.Errorf("%d were granted, at most %d", granted.Load(), most)
	}
	if least := int64(rate * seconds / 2); granted.Load() < least || refused.Load() == 0 {
		t.Errorf("%d were granted, at least %d, and %d refused", granted.Load(), least, refused.Load())
	}
}

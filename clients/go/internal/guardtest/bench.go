//go:build unix

package guardtest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// granting is a connection that grants everything, at no cost.
type granting struct{ owned *idemdv1.ReserveResponse }

// Invoke implements grpc.ClientConnInterface.
func (g granting) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if r, is := reply.(*idemdv1.ReserveResponse); is {
		r.Decision = g.owned.GetDecision()
	}
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (granting) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("there are no streams")
}

// FreeClient is a client whose RPCs cost nothing: all else is what it is measured for.
func FreeClient() *idem.Client {
	return idem.New(granting{&idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: &idemdv1.Owned{
		Attempt: 1, Fence: 1, LeaseRemaining: durationpb.New(30 * time.Second),
	}}}}, idem.Options{Tenant: "acme"})
}

// Measure runs a benchmark's loop around f, and reports allocations and the CPU time of
// the whole process, as "cpu-ns/op".
func Measure(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

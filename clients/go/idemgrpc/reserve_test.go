package idemgrpc_test

import (
	"context"
	"testing"
	"time"

	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestWhatAGuardIsConfiguredWithReachesReserve(t *testing.T) {
	s := open(t, guarding(idemgrpc.Guard{
		Mode: idem.Transactional, Namespace: "payments", Lease: 7 * time.Second, Retention: 3 * time.Hour, PolicyVersion: "tariff-7",
		MinRemaining: 40 * time.Second,
	}), idem.Options{})
	asked := make(chan *idemdv1.ReserveRequest, 8)
	s.Daemon.Fault(func(m proto.Message) error {
		if r, is := m.(*idemdv1.ReserveRequest); is {
			asked <- proto.CloneOf(r)
		}
		return nil
	})
	second := make(chan *answer, 1)
	s.handle = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		go func() { second <- s.call(t, "k", order(1)) }()
		var last *idemdv1.ReserveRequest
		for range 3 { // this call's, the second one's, and once it knows that it has to wait
			last = <-asked
			if last.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_RERUN || last.GetNamespace() != "payments" || last.GetLease().AsDuration() != 7*time.Second ||
				last.GetRetention().AsDuration() != 3*time.Hour || last.GetPolicyVersion() != "tariff-7" {
				t.Errorf("reserved with %v", last)
			}
		}
		// The caller has a minute; 40 s of it are kept.
		if wait := last.GetWait().AsDuration(); wait > 20*time.Second || wait < 5*time.Second {
			t.Errorf("it asks to be held for %v", wait)
		}
		return receipt(), nil
	}
	if a := s.call(t, "k", order(1)); a.err != nil {
		t.Error(a.err)
	}
	if a := <-second; a.err != nil || !a.replayed() {
		t.Errorf("the second one is answered %v", a.err)
	}
}

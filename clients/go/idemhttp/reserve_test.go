package idemhttp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func TestWhatAGuardIsConfiguredWithReachesReserve(t *testing.T) {
	s := newShop(t, idemhttp.Config{
		Mode: idem.Transactional, Namespace: "payments", Lease: 7 * time.Second, Retention: 3 * time.Hour, PolicyVersion: "tariff-7",
		Wait: 50 * time.Second, MinRemaining: 40 * time.Second,
	}, idem.Options{})
	guarded := s.guard.Middleware(s)
	s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		guarded.ServeHTTP(w, r.WithContext(ctx))
	}))
	asked := make(chan *idemdv1.ReserveRequest, 8)
	s.Daemon.Fault(func(m proto.Message) error {
		if r, is := m.(*idemdv1.ReserveRequest); is {
			asked <- proto.CloneOf(r)
		}
		return nil
	})
	second := make(chan *answer, 1)
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		go func() { second <- s.post(t, "k") }()
		var last *idemdv1.ReserveRequest
		for range 3 { // this request's, the second one's, and once it knows that it has to wait
			last = <-asked
			if last.GetOnLapse() != idemdv1.LapsePolicy_LAPSE_POLICY_RERUN || last.GetNamespace() != "payments" || last.GetLease().AsDuration() != 7*time.Second ||
				last.GetRetention().AsDuration() != 3*time.Hour || last.GetPolicyVersion() != "tariff-7" {
				t.Errorf("reserved with %v", last)
			}
		}
		// The request has a minute; 40 s of it are kept.
		if wait := last.GetWait().AsDuration(); wait > 20*time.Second || wait < 5*time.Second {
			t.Errorf("it asks to be held for %v", wait)
		}
		receipt(w, r)
	}
	wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, false)
	wantAnswer(t, <-second, 201, receiptOfOne, true)
}

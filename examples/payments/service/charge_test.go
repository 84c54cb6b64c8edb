package service

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/payments/bank"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
	"github.com/idemd/idemd/examples/payments/refusal"
)

// idemd has forgotten the key, and the bank has not: a late retry finds its booking, and
// another charge is not answered with it.
func TestAKeyThatIsUsedAgainAfterItsRetentionChargesNobodyTwice(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	server := httptest.NewServer(bank.New(log))
	defer server.Close()
	s := &Service{Bank: bank.NewClient(server.URL), Log: log}
	ctx := idem.WithGrant(t.Context(), &idem.Grant{Tenant: "shop", Key: "k", Attempt: 1})
	charge := func(cents int64) (*paymentsv1.ChargeResponse, error) {
		return s.Charge(ctx, &paymentsv1.ChargeRequest{User: "ann", Order: "1042", Cents: cents, Card: "any"})
	}
	first, err := charge(500)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := charge(500); err != nil || again.GetBooking() != first.GetBooking() {
		t.Errorf("a late retry hears %v, %v", again, err)
	}
	if other, err := charge(700); refusal.In(status.Convert(err)).GetReason() != refusal.KeyReused {
		t.Errorf("another charge hears %v, %v", other, err)
	}
	unresolved := &idem.Unresolved{Tenant: "shop", Key: "k"}
	for cents, want := range map[int64]string{500: "reconciled: it was executed", 700: "reconciled: it was refused"} {
		verdict, err := s.askBank(t.Context(), &paymentsv1.ChargeRequest{Order: "1042", Cents: cents}, unresolved)
		if err != nil || verdict.Reason != want {
			t.Errorf("asked about %d cents: %q, %v", cents, verdict.Reason, err)
		}
	}
}

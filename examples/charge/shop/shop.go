package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/bank"
)

// Order is what is charged.
type Order struct {
	ID    string
	Cents int64
}

// Shop charges orders.
type Shop struct {
	Idem *idem.Client
	Bank *bank.Client
	// Lease is how long the shop may be dead before others are told that nobody knows.
	Lease time.Duration
	// Settle is longer than any request to the bank can be under way.
	Settle time.Duration
	// Pretend is the trouble that the bank shall make.
	Pretend bank.Pretend
}

// Charge charges an order, unless it was charged before: then the receipt is the one
// of back then. Repeat it as often as you like.
func (s *Shop) Charge(ctx context.Context, o Order) (*idem.Answer, error) {
	return s.Idem.Do(ctx, s.operation(o), func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
		return Outcome(s.Bank.Charge(ctx, bank.Request{
			Name: g.DeriveKey("charge"), Order: o.ID, Cents: o.Cents, Pretend: s.Pretend,
		}))
	})
}

// operation says what charging this order is: its name, and what it means.
func (s *Shop) operation(o Order) idem.Operation {
	return idem.Operation{
		Key:         "charge-" + o.ID,
		Fingerprint: idem.SHA256("charge-v1", fmt.Appendf(nil, "%s %d", o.ID, o.Cents)),
		Lease:       s.Lease,
		Settle:      s.Settle,
		Reconcile: func(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
			return Ask(ctx, s.Bank, u.DeriveKey("charge"))
		},
	}
}

// Ask finds out from the bank's ledger what became of a charge.
func Ask(ctx context.Context, b *bank.Client, name string) (idem.Verdict, error) {
	switch receipt, err := b.Find(ctx, name); {
	case err != nil:
		return idem.Verdict{}, err
	case receipt == nil:
		return idem.WasNotExecuted(), nil
	default:
		return idem.WasExecuted(Charged(receipt)), nil
	}
}

// Outcome says what the bank's answer means: charged, certainly not charged, refused
// for good, or nobody knows.
func Outcome(receipt []byte, err error) (*idem.Result, error) {
	switch {
	case errors.Is(err, bank.ErrDeclined):
		return Declined(), idem.Final(err)
	case errors.Is(err, bank.ErrBusy), errors.Is(err, bank.ErrFenced):
		return nil, idem.NotExecuted(err)
	case err != nil:
		return nil, idem.Unknown(err)
	}
	return Charged(receipt), nil
}

// Charged is what whoever asks for a charge is answered, now and later: the bank's receipt,
// whose number is the id of what was decided.
func Charged(receipt []byte) *idem.Result {
	var line bank.Charge
	_ = json.Unmarshal(receipt, &line) // a receipt without a number is one, too
	return &idem.Result{
		Status: http.StatusCreated, ContentType: "application/json", Body: receipt, DecisionId: line.Receipt,
		Headers: []*idem.Header{{Name: "Location", Value: []byte("/receipts/" + line.Receipt)}},
	}
}

// Declined is the answer where the bank has refused for good.
func Declined() *idem.Result {
	return &idem.Result{Status: http.StatusPaymentRequired, ContentType: "text/plain; charset=utf-8", Body: []byte("declined\n")}
}

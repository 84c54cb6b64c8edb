package front

import (
	"context"
	"errors"
	"net/http"

	"github.com/idemd/idemd/clients/go/idemgrpc"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
)

// charge is the body of POST /payments.
type charge struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
	Card  string `json:"card"`
}

// maxOrderBytes is payments' limit.
const maxOrderBytes = 64

// chargeIn refuses what payments would refuse: there it would have taken a key.
func chargeIn(r *http.Request) (c charge, err error) {
	if err := decode(r, &c); err != nil {
		return c, err
	}
	if c.Order == "" || len(c.Order) > maxOrderBytes || c.Cents < 1 || c.Card == "" {
		return c, errors.New("a payment needs an order of 1 to 64 bytes, cents of at least 1 and a card")
	}
	return c, nil
}

// payment is how a charge is answered.
type payment struct {
	Booking string `json:"booking"`
	Order   string `json:"order"`
	Cents   int64  `json:"cents"`
}

// charge has payments charge the card.
func (h *handlers) charge(w http.ResponseWriter, r *http.Request) {
	c, err := chargeIn(r)
	if err != nil { // Validate has seen the same
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(idemgrpc.WithDerivedKey(r.Context(), "charge"), patience)
	defer cancel()
	user, _ := session(r) // the guard has asked for it
	charged, err := h.payments.Charge(ctx, &paymentsv1.ChargeRequest{User: user, Order: c.Order, Cents: c.Cents, Card: c.Card})
	if err != nil {
		refuse(w, r, err)
		return
	}
	reply(w, http.StatusCreated, payment{Booking: charged.GetBooking(), Order: charged.GetOrder(), Cents: charged.GetCents()})
}

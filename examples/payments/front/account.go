package front

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idemgrpc"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
)

// change is the body of PATCH /accounts/{id}. The version that the user has seen is in it,
// and so in the fingerprint: with another version it is another request, under another
// key. (In an If-Match header it would not be, and 412 its answer.)
type change struct {
	LimitCents *int64 `json:"limit_cents"`
	Version    int64  `json:"version"`
}

func changeIn(r *http.Request) (c change, err error) {
	if err := decode(r, &c); err != nil {
		return c, err
	}
	if c.LimitCents == nil || *c.LimitCents < 0 || c.Version < 1 {
		return c, errors.New("a change needs limit_cents of at least 0, and the version that was read")
	}
	return c, nil
}

// account is how an account is shown.
type account struct {
	ID         string `json:"id"`
	LimitCents int64  `json:"limit_cents"`
	Version    int64  `json:"version"`
}

func shown(a *paymentsv1.Account) account {
	return account{ID: a.GetId(), LimitCents: a.GetLimitCents(), Version: a.GetVersion()}
}

// change has payments change an account.
func (h *handlers) change(w http.ResponseWriter, r *http.Request) {
	c, err := changeIn(r)
	if err != nil { // Validate has seen the same
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(idemgrpc.WithDerivedKey(r.Context(), "change"), patience)
	defer cancel()
	user, _ := session(r) // the guard has asked for it
	changed, err := h.payments.UpdateAccount(ctx, &paymentsv1.UpdateAccountRequest{
		User: user, Id: r.PathValue("id"), LimitCents: *c.LimitCents, Version: c.Version,
	})
	if err != nil {
		refuse(w, r, err)
		return
	}
	reply(w, http.StatusOK, shown(changed.GetAccount()))
}

// show reads an account. Reading needs no key.
func (h *handlers) show(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	read, err := h.payments.GetAccount(ctx, &paymentsv1.GetAccountRequest{Id: r.PathValue("id")})
	if err != nil {
		p := refusedForGood(status.Convert(err))
		if p == nil {
			p = &problem{Title: "Payments can't be reached", Status: http.StatusServiceUnavailable}
		}
		p.write(w)
		return
	}
	reply(w, http.StatusOK, shown(read.GetAccount()))
}

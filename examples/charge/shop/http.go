package shop

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
)

// Handler answers POST /orders/{order}/charge?cents=N with the receipt.
func (s *Shop) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}/charge", s.handle)
	return mux
}

func (s *Shop) handle(w http.ResponseWriter, r *http.Request) {
	cents, err := strconv.ParseInt(r.FormValue("cents"), 10, 64)
	if err != nil || cents <= 0 {
		http.Error(w, "cents: want a positive number", http.StatusBadRequest)
		return
	}
	answer, err := s.Charge(r.Context(), Order{ID: r.PathValue("order"), Cents: cents})
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Charge-Replayed", strconv.FormatBool(answer.Replayed))
	write(w, answer.Result)
}

// write answers with a result, whoever had it first.
func write(w http.ResponseWriter, result *idem.Result) {
	for _, h := range result.GetHeaders() {
		w.Header().Add(h.GetName(), string(h.GetValue()))
	}
	w.Header().Set("Content-Type", result.GetContentType())
	w.WriteHeader(int(result.GetStatus()))
	_, _ = w.Write(result.GetBody())
}

func refuse(w http.ResponseWriter, err error) {
	var (
		final      *idem.FinalError
		inProgress *idem.InProgressError
	)
	switch {
	case errors.As(err, &final) && final.Unrecorded == nil:
		write(w, final.Result)
	case errors.As(err, &inProgress):
		w.Header().Set("Retry-After", strconv.Itoa(int(inProgress.RetryAfter/time.Second)+1))
		http.Error(w, "this order is being charged", http.StatusConflict)
	case errors.Is(err, idem.FingerprintMismatch):
		http.Error(w, "this order was charged with another amount", http.StatusUnprocessableEntity)
	default: // also an outcome that nobody knows: repeating finds it out
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not known yet: ask again", http.StatusServiceUnavailable)
	}
}

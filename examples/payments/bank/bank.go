package bank

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Slowest is the bank's promise: a request is in its statement this long after it has come
// in, or never.
const Slowest = 2 * time.Second

// Cards that make trouble. Any other is booked and answered at once.
const (
	// CardDeclined is refused for good.
	CardDeclined = "declined"
	// CardBusy is refused the first time: nothing is booked, and it may come again.
	CardBusy = "busy"
	// CardLate is booked and answered as late as the bank ever does, whether or not its
	// caller still waits.
	CardLate = "late"
	// CardNever is booked at once and never answered.
	CardNever = "never"
	// CardTwice arrives twice, as behind a proxy that repeats what it has sent.
	CardTwice = "twice"
)

// maxRequestBytes bounds a request's body.
const maxRequestBytes = 64 << 10

// Request asks for one booking.
type Request struct {
	// Reference is the caller's name for the booking: of several requests with one
	// reference the first is booked, and the others are answered with that booking.
	// Without it each request is booked.
	Reference string `json:"reference,omitempty"`
	Order     string `json:"order"`
	Cents     int64  `json:"cents"`
	Card      string `json:"card"`
}

// Booking is a line of the statement.
type Booking struct {
	Booking string `json:"booking"`
	Order   string `json:"order"`
	Cents   int64  `json:"cents"`

	reference string
}

// Bank is the bank, with its statement in memory. It may be used by many goroutines.
type Bank struct {
	mux *http.ServeMux
	log *slog.Logger

	mu        sync.Mutex
	statement []Booking
	turnedOff map[string]bool // references that were told "busy"
}

// New makes a bank without bookings. It logs what it books.
func New(log *slog.Logger) *Bank {
	b := &Bank{mux: http.NewServeMux(), log: log, turnedOff: map[string]bool{}}
	b.mux.HandleFunc("POST /bookings", b.post)
	b.mux.HandleFunc("GET /bookings", b.show)
	return b
}

// ServeHTTP implements http.Handler.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

func (b *Bank) post(w http.ResponseWriter, r *http.Request) {
	var request Request
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil || json.Unmarshal(body, &request) != nil || request.Order == "" || request.Cents <= 0 {
		http.Error(w, "a booking needs an order and cents above 0", http.StatusBadRequest)
		return
	}
	switch request.Card {
	case CardDeclined:
		http.Error(w, "declined", http.StatusPaymentRequired)
		return
	case CardBusy:
		if b.turnOff(request.Reference) {
			http.Error(w, "come back later", http.StatusServiceUnavailable)
			return
		}
	case CardLate:
		<-time.After(Slowest)
	case CardTwice:
		b.book(request)
	}
	booking := b.book(request)
	if request.Card == CardNever {
		<-r.Context().Done() // until the caller hangs up
		return
	}
	reply(w, http.StatusCreated, booking)
}

// turnOff is true the first time.
func (b *Bank) turnOff(reference string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.turnedOff[reference]
	b.turnedOff[reference] = true
	return first
}

// book is the effect, unless the reference was booked before.
func (b *Bank) book(r Request) Booking {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, is := range b.statement {
		if r.Reference != "" && is.reference == r.Reference {
			return is
		}
	}
	booking := Booking{Booking: fmt.Sprintf("b-%06d", len(b.statement)+1), Order: r.Order, Cents: r.Cents, reference: r.Reference}
	b.statement = append(b.statement, booking)
	b.log.Info("booked", "booking", booking.Booking, "order", r.Order)
	return booking
}

// show is the statement, or its lines with this order or reference.
func (b *Bank) show(w http.ResponseWriter, r *http.Request) {
	order, reference := r.FormValue("order"), r.FormValue("reference")
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := []Booking{}
	for _, is := range b.statement {
		if (order == "" || order == is.Order) && (reference == "" || reference == is.reference) {
			lines = append(lines, is)
		}
	}
	reply(w, http.StatusOK, lines)
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has hung up hears nothing
}

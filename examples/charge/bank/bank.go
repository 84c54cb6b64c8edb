package bank

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Request asks for one charge.
type Request struct {
	// Name is the caller's name for the charge, by which the ledger can be asked.
	Name  string `json:"name"`
	Order string `json:"order"`
	Cents int64  `json:"cents"`
	// Fence, where it is not zero, makes the charge one transaction that refuses a
	// smaller fence than it has seen for this name, and returns the receipt of a charge
	// that was made already.
	Fence   int64   `json:"fence,omitempty"`
	Pretend Pretend `json:"pretend,omitzero"`
}

// Pretend is the trouble that the bank shall make.
type Pretend struct {
	// Before and After are how long it takes before the effect, and after it.
	Before time.Duration `json:"before,omitempty"`
	After  time.Duration `json:"after,omitempty"`
	// HangUp is when it cuts the connection instead of answering: "before" the effect,
	// which then does not happen, or "after" it.
	HangUp string `json:"hang_up,omitempty"`
	// Refuse is how it refuses: "busy" (try again) or "declined" (for good).
	Refuse string `json:"refuse,omitempty"`
}

// Charge is one line of the ledger, and the receipt for it.
type Charge struct {
	Receipt string `json:"receipt"`
	Name    string `json:"name"`
	Order   string `json:"order"`
	Cents   int64  `json:"cents"`
}

// Bank is the bank. Safe for use by many goroutines.
type Bank struct {
	mux *http.ServeMux
	// Arrived, if it is set, is told of each request before anything is done. Set it
	// before the first one.
	Arrived func(Request)

	mu     sync.Mutex
	ledger []Charge
	lines  map[string][]int // by "order:" or "name:"
	fences map[string]int64
}

// New makes a bank with an empty ledger.
func New() *Bank {
	b := &Bank{mux: http.NewServeMux(), lines: map[string][]int{}, fences: map[string]int64{}}
	b.mux.HandleFunc("POST /charges", b.charge)
	b.mux.HandleFunc("GET /charges/{name}", b.find)
	return b
}

// ServeHTTP implements http.Handler.
func (b *Bank) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// Charges are the lines of the ledger for an order, oldest first.
func (b *Bank) Charges(order string) []Charge { return b.under("order:" + order) }

// Total is how many lines the ledger has.
func (b *Bank) Total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ledger)
}

// charge goes on when its caller has hung up: a bank does.
func (b *Bank) charge(w http.ResponseWriter, r *http.Request) {
	var request Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&request); err != nil {
		http.Error(w, "this is no charge", http.StatusBadRequest)
		return
	}
	if b.Arrived != nil {
		b.Arrived(request)
	}
	pause(request.Pretend.Before)
	switch {
	case request.Pretend.HangUp == "before":
		panic(http.ErrAbortHandler)
	case request.Pretend.Refuse == "busy":
		http.Error(w, "come back later", http.StatusServiceUnavailable)
		return
	}
	status, charge := b.enter(request)
	pause(request.Pretend.After)
	switch {
	case request.Pretend.HangUp == "after":
		panic(http.ErrAbortHandler)
	case status == http.StatusCreated:
		reply(w, status, charge)
	default:
		http.Error(w, http.StatusText(status), status)
	}
}

// enter is the effect, in one transaction.
func (b *Bank) enter(r Request) (status int, charge Charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Fence != 0 {
		if r.Fence < b.fences[r.Name] {
			return http.StatusConflict, Charge{}
		}
		b.fences[r.Name] = r.Fence
		if lines := b.lines["name:"+r.Name]; len(lines) > 0 {
			return http.StatusCreated, b.ledger[lines[0]]
		}
	}
	if r.Pretend.Refuse == "declined" {
		return http.StatusPaymentRequired, Charge{}
	}
	line := len(b.ledger)
	charge = Charge{Receipt: fmt.Sprintf("r-%06d", line+1), Name: r.Name, Order: r.Order, Cents: r.Cents}
	b.ledger = append(b.ledger, charge)
	for _, index := range []string{"order:" + r.Order, "name:" + r.Name} {
		b.lines[index] = append(b.lines[index], line)
	}
	return http.StatusCreated, charge
}

// find tells what the ledger has under a name.
func (b *Bank) find(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, b.under("name:"+r.PathValue("name")))
}

func (b *Bank) under(index string) []Charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []Charge{}
	for _, line := range b.lines[index] {
		found = append(found, b.ledger[line])
	}
	return found
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever has hung up hears nothing
}

func pause(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// String is the charge as JSON, as the bank sends it.
func (c Charge) String() string {
	text, _ := json.Marshal(c) // strings and numbers always can be
	return string(text)
}

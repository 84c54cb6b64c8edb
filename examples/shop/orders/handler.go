package orders

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/messaging/fence"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

const (
	// lease is how long this service may be silent before a retry takes over: short, so
	// that a killed one is followed within seconds. 30 s is a better one.
	lease = 2 * time.Second
	// wait is how long a retry is held while another request with its key is under way:
	// longer than the lease, so that it is the one that takes over.
	wait = 5 * time.Second
	// maxBodyBytes and maxTextBytes bound a request.
	maxBodyBytes, maxTextBytes = 16 << 10, 200
	maxQuantity                = 1000
)

// Config is what the service works with.
type Config struct {
	Pool *pgxpool.Pool
	Log  *slog.Logger
	// Broken is one of the Broken constants, or empty.
	Broken string
	// Publisher is for BrokenOutbox only.
	Publisher message.Publisher
}

type service struct {
	Config
	events   *outbox.Outbox
	attempts *fence.Table
}

// Handler is the service, behind its guard.
func Handler(client *idem.Client, c Config) (http.Handler, error) {
	s := &service{Config: c}
	var err error
	if s.events, err = outbox.New(Outbox()); err != nil {
		return nil, err
	}
	if s.attempts, err = fence.New(schema, ""); err != nil {
		return nil, err
	}
	guard, err := idemhttp.New(client, idemhttp.Config{
		// The effect is in one transaction, and the fence in it lets one attempt commit: so
		// an attempt that falls silent is simply followed by another one.
		Mode: idem.Transactional, Lease: lease, Wait: wait, MaxBodyBytes: maxBodyBytes,
		Validate: func(r *http.Request) error { _, err := orderIn(r); return err },
		Observe: func(r *http.Request, e idemhttp.Event) {
			c.Log.Debug("request", "path", r.URL.Path, "ending", e.Ending, "reason", e.Reason)
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Middleware(http.HandlerFunc(s.place)))
	return mux, nil
}

// order is the body of POST /orders.
type order struct {
	// Reference is the customer's name for it.
	Reference string `json:"reference"`
	Article   string `json:"article"`
	Quantity  int64  `json:"quantity"`
	MailTo    string `json:"mail_to"`
}

// orderIn refuses what can't be meant, before it takes a key.
func orderIn(r *http.Request) (o order, err error) {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if decoder.Decode(&o) != nil || decoder.More() {
		return o, errors.New("the body is not the JSON object that this resource takes")
	}
	for _, text := range []string{o.Reference, o.Article, o.MailTo} {
		if text == "" || len(text) > maxTextBytes || strings.ContainsFunc(text, unicode.IsControl) {
			return o, errors.New("an order needs reference, article and mail_to, of 1 to 200 bytes without control characters")
		}
	}
	if o.Quantity < 1 || o.Quantity > maxQuantity {
		return o, errors.New("an order needs a quantity of 1 to 1000")
	}
	return o, nil
}

// place places an order, and answers with the number that it has got.
func (s *service) place(w http.ResponseWriter, r *http.Request) {
	o, err := orderIn(r)
	if err != nil { // Validate has seen the same
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	grant, guarded := idem.GrantFrom(r.Context())
	if !guarded {
		http.Error(w, "orders are placed behind a guard only", http.StatusInternalServerError)
		return
	}
	result, err := s.once(r.Context(), grant, o)
	if err != nil {
		s.Log.Warn("an order was not placed, or nobody knows", "key", grant.Key, "attempt", grant.Attempt, "error", err)
		if idem.Declared(err) { // the fence declares what may have committed
			idemhttp.Unknown(r)
		}
		w.Header().Set("Retry-After", "1") // each attempt counts: give the database time
		http.Error(w, "It was not done, or nobody knows yet: repeat it with the same key", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", result.GetContentType())
	w.WriteHeader(int(result.GetStatus()))
	_, _ = w.Write(result.GetBody()) // who has hung up hears nothing
}

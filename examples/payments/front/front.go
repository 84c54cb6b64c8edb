package front

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"
)

const (
	// lease is how long this front may be silent before somebody else's retry takes over:
	// short, so that the tour takes seconds. 30 s is a better one.
	lease = 2 * time.Second
	// wait is how long a request is held while another one with its key is under way.
	// After that it hears 202.
	wait = 2 * time.Second
	// patience is how long payments is waited for: longer than it takes to give up a dead
	// attempt and to ask the bank.
	patience = 10 * time.Second
	// sessionHeader stands for real authentication: a cookie or token that is checked. Here
	// everybody is who they say they are.
	sessionHeader = "X-Session"
	// maxBodyBytes bounds what is read of a request.
	maxBodyBytes = 64 << 10
	// statusPath is where requests that are under way can be looked at.
	statusPath = "/requests/"
)

// handlers are what stands behind the guard.
type handlers struct {
	payments paymentsv1.PaymentsServiceClient
}

// Handler guards the front's mutating handlers. secret, at least 16 bytes, signs the
// addresses of status resources: it is the same after a restart.
func Handler(client *idem.Client, payments grpc.ClientConnInterface, secret []byte, log *slog.Logger) (http.Handler, error) {
	h := &handlers{paymentsv1.NewPaymentsServiceClient(payments)}
	config := idemhttp.Config{
		// Nothing happens in this process: all it does is to call payments, under a key that
		// is derived from its own and so the same on every attempt. Running that again is
		// safe, whatever became of the last time; payments knows. That is what Transactional
		// asks for. External would stop the retry where payments or this front has died in
		// the middle, to find out first; and who finds out is payments, when it is called.
		// (It can't be repeated for ever: the daemon grants 20 attempts.)
		Mode:  idem.Transactional,
		Lease: lease, Wait: wait,
		Subject: session, MaxBodyBytes: maxBodyBytes,
		StatusPath: statusPath, StatusSecret: secret,
		Observe: func(r *http.Request, e idemhttp.Event) {
			log.Info("request", "path", r.URL.Path, "ending", e.Ending, "reason", e.Reason)
		},
		// encoding/json takes "Cents" for "cents"; strict rules refuse bodies where it matters.
		Fingerprint: fingerprint.HTTPRules{Rules: fingerprint.Rules{Strict: true}},
	}
	guardedBy := func(validate func(*http.Request) error) (*idemhttp.Guard, error) {
		config.Validate = validate
		return idemhttp.New(client, config)
	}
	charges, err := guardedBy(func(r *http.Request) error { _, err := chargeIn(r); return err })
	if err != nil {
		return nil, err
	}
	changes, err := guardedBy(func(r *http.Request) error { _, err := changeIn(r); return err })
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", charges.Middleware(http.HandlerFunc(h.charge)))
	mux.Handle("PATCH /accounts/{id}", changes.Middleware(http.HandlerFunc(h.change)))
	mux.HandleFunc("GET /accounts/{id}", h.show)
	mux.Handle(statusPath, charges.StatusHandler()) // by key: one of them shows both
	return mux, nil
}

// session is the user on whose behalf a request runs.
func session(r *http.Request) (string, error) {
	user := r.Header.Get(sessionHeader)
	if user == "" {
		return "", idemhttp.Refuse(http.StatusUnauthorized, "This request needs a session: "+sessionHeader+": alice")
	}
	return user, nil
}

// decode reads a JSON body with nothing unknown in it. The guard has bounded it.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if decoder.Decode(into) != nil || decoder.More() {
		return errors.New("the body is not the JSON object that this resource takes")
	}
	return nil
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has hung up hears nothing
}

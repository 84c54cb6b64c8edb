package e2e

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// serveHTTP runs a handler until the test ends.
func serveHTTP(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics, which are meant
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// guardHTTP is a guard whose idemd is at an address.
func guardHTTP(t *testing.T, daemon string, c idemhttp.Config, o idem.Options) *idemhttp.Guard {
	t.Helper()
	o.Tenant = "acme"
	guard, err := idemhttp.New(newClient(t, daemon, o), c)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// heard is all that a caller hears.
type heard struct {
	status   int
	body     string
	reason   idemhttp.Reason
	replayed bool
	header   http.Header
	err      error
}

// post sends an order under a key, if there is one, as any client would.
func post(ctx context.Context, t *testing.T, url, key, body string) heard {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set(idemhttp.KeyHeader, key)
	}
	response, err := http.DefaultTransport.RoundTrip(r) // it follows no redirect
	if err != nil {
		return heard{err: err}
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return heard{
		response.StatusCode, string(read), idemhttp.ReasonOf(response), response.Header.Get(idemhttp.ReplayedHeader) == "true", response.Header, err,
	}
}

func TestFiftyGuardedRequestsAtOnceWithOneKeyHaveOneEffectAndFiftyAnswers(t *testing.T) {
	fiftyAtOnce(t, func(t *testing.T, daemon string, effect func() string) func() (string, bool, error) {
		url := serveHTTP(t, guardHTTP(t, daemon, idemhttp.Config{}, idem.Options{}).Middleware(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, effect())
			})))
		return func() (string, bool, error) {
			got := post(harness.Bounded(t), t, url, "k", "order")
			if got.err == nil && got.status != http.StatusCreated {
				t.Errorf("a caller is answered %d", got.status)
			}
			return got.body, got.replayed, got.err
		}
	})
}

// The daemon restarts in the middle, and whoever asks meanwhile finds the answer by the
// status resource.
func TestAGuardedRequestOutlivesARestartAndIsSeenByItsStatusResource(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		guard := guardHTTP(t, d.GRPC, idemhttp.Config{StatusPath: "/idempotency/", Wait: -1}, idem.Options{})
		started, end := make(chan struct{}), make(chan struct{})
		mux := http.NewServeMux()
		mux.Handle("POST /orders", guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(started)
			<-end
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "the one effect")
		})))
		mux.Handle("/idempotency/", guard.StatusHandler())
		url := serveHTTP(t, mux)
		first := make(chan heard, 1)
		go func() { first <- post(harness.Bounded(t), t, url, "k", "order") }()
		harness.Await(t, "the handler", started)
		running := post(harness.Bounded(t), t, url, "k", "order")
		if running.status != http.StatusAccepted || running.reason != idemhttp.ReasonInProgress {
			t.Fatalf("answered %d %q", running.status, running.body)
		}
		d.Kill()
		harness.Restart(t, d)
		close(end)
		if got := harness.Await(t, "the answer", first); got.body != "the one effect" || got.replayed {
			t.Errorf("answered %d %q, %v", got.status, got.body, got.err)
		}
		response, err := http.Get(url + running.header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusCreated || string(body) != "the one effect" {
			t.Errorf("the status resource tells %d %q, %v", response.StatusCode, body, err)
		}
	})
}

// A client with a Transport, whose connections break; on the other side a guard.
func TestATransportFindsTheAnswerOfARequestWhoseConnectionBroke(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		var effects, tries atomic.Int32
		d := house.Serve(t, s)
		guard := guardHTTP(t, d.GRPC, idemhttp.Config{}, idem.Options{})
		guarded := guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "effect ", effects.Add(1))
		}))
		url := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tries.Add(1) < 3 {
				guarded.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler) // its answer is lost
			}
			guarded.ServeHTTP(w, r)
		}))
		client := &http.Client{Transport: &idemhttp.Transport{}}
		response, err := client.Post(url+"/orders", "text/plain", strings.NewReader("order"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || string(body) != "effect 1" || response.Header.Get(idemhttp.ReplayedHeader) != "true" || idemhttp.KeepKey(response, nil) {
			t.Errorf("answered %d %q, %v", response.StatusCode, body, err)
		}
		if is := dial(t, d.GRPC).lookup(t, response.Request.Header.Get(idemhttp.KeyHeader)); is.GetState() != idemdv1.State_STATE_SUCCEEDED {
			t.Errorf("stored is %v", is)
		}
	})
}

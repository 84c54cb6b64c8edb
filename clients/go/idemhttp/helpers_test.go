package idemhttp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const (
	succeeded  = idemdv1.State_STATE_SUCCEEDED
	final      = idemdv1.State_STATE_FAILED_FINAL
	retryable  = idemdv1.State_STATE_FAILED_RETRYABLE
	unknown    = idemdv1.State_STATE_UNKNOWN
	processing = idemdv1.State_STATE_PROCESSING
)

// shop is a server whose handler a test writes. It is a real one.
type shop struct {
	guardtest.Room[idemhttp.Event]

	// handle is what the handler does; nil = it answers 201 with a receipt.
	handle http.HandlerFunc

	guard  *idemhttp.Guard
	server *httptest.Server
}

// ServeHTTP is the handler.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Ran.Add(1)
	if s.handle == nil {
		receipt(w, r)
		return
	}
	s.handle(w, r)
}

func receipt(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/1")
	w.Header().Set("X-Trace", "7")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"order":1,"of":`+string(body)+`}`)
}

func answering(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// open serves a shop with a guard, on an idemd in memory, until the test ends.
func open(t testing.TB, c idemhttp.Config, o idem.Options) *shop {
	t.Helper()
	s := newShop(t, c, o)
	mux := http.NewServeMux()
	if c.StatusPath != "" {
		mux.Handle(c.StatusPath, s.guard.StatusHandler())
	}
	mux.Handle("/", s.guard.Middleware(s))
	s.serve(t, mux)
	return s
}

func newShop(t testing.TB, c idemhttp.Config, o idem.Options) *shop {
	t.Helper()
	s := &shop{}
	s.Open(t, o)
	if c.Observe == nil {
		c.Observe = func(_ *http.Request, e idemhttp.Event) { s.Events.Add(e) }
	}
	guard, err := idemhttp.New(s.Client, c)
	if err != nil {
		t.Fatal(err)
	}
	s.guard = guard
	return s
}

// from tells who somebody is by a header that they must have.
func from(name string) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		if who := r.Header.Get(name); who != "" {
			return who, nil
		}
		return "", idemhttp.Refuse(401, "who are you?")
	}
}

// serve serves a handler. What it panics with is not logged.
func (s *shop) serve(t testing.TB, h http.Handler) {
	t.Helper()
	s.server = httptest.NewUnstartedServer(h)
	s.server.Config.ErrorLog = discard()
	s.server.Start()
	t.Cleanup(s.server.Close)
}

// answer is all that a caller gets.
type answer struct {
	status          int
	header, trailer http.Header
	body            string
	err             error // the connection broke
}

func (a *answer) replayed() bool { return a.header.Get(idemhttp.ReplayedHeader) == "true" }
func (a *answer) reason() idemhttp.Reason {
	return idemhttp.Reason(a.header.Get(idemhttp.ReasonHeader))
}

// post sends a POST of {"n":1} under a key.
func (s *shop) post(t testing.TB, key string) *answer {
	t.Helper()
	return s.send(t, s.request(t, http.MethodPost, "/orders", `{"n":1}`, key))
}

// request is one, with as many keys as are given.
func (s *shop) request(t testing.TB, method, path, body string, keys ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(guardtest.Bounded(t), method, s.server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, key := range keys {
		r.Header.Add(idemhttp.KeyHeader, key)
	}
	return r
}

func (s *shop) send(t testing.TB, r *http.Request) *answer {
	t.Helper()
	response, err := s.server.Client().Do(r)
	if err != nil {
		return &answer{err: err, header: http.Header{}}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return &answer{response.StatusCode, response.Header, response.Trailer, string(body), err}
}

// wantRefusal checks all that a guard's own answer says.
func wantRefusal(t testing.TB, a *answer, status int, reason idemhttp.Reason, keep bool) {
	t.Helper()
	var p struct {
		Type, Title, Reason string
		Status              int
		KeepKey             *bool `json:"keep_key"`
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.KeepKey == nil {
		t.Errorf("answered %d %q, %v: no problem document", a.status, a.body, a.err)
		return
	}
	if a.status != status || a.reason() != reason || p.Status != status || p.Reason != string(reason) || *p.KeepKey != keep ||
		p.Type != idemhttp.ProblemType(reason) || p.Title == "" || a.header.Get("Content-Type") != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("answered %d %v %s, want %d %s (keep the key: %v)", a.status, a.header, a.body, status, reason, keep)
	}
	if k := idemhttp.KeepKey(&http.Response{StatusCode: a.status, Header: a.header}, nil); k != keep && reason != "" {
		t.Errorf("KeepKey says %v of %s", k, reason)
	}
}

// wantAnswer checks a handler's answer.
func wantAnswer(t testing.TB, a *answer, status int, body string, replayed bool) {
	t.Helper()
	if a.err != nil || a.status != status || a.body != body || a.replayed() != replayed {
		t.Errorf("answered %d %.200q (replayed: %v), %v, want %d %.200q (%v)", a.status, a.body, a.replayed(), a.err, status, body, replayed)
	}
}

// wantEndings checks what Observe was told since the last time.
func (s *shop) wantEndings(t testing.TB, want ...idemhttp.Ending) {
	t.Helper()
	got := s.Events.Take()
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i].Ending == want[i]
	}
	if !same {
		t.Errorf("observed %+v, want %v", got, want)
	}
}

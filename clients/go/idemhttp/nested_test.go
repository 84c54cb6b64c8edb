package idemhttp_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// A guarded handler that calls another one in the same process, through its guard.
func TestWhatAHandlerWithinAnotherDeclaresIsNotSaidOfTheOuterOne(t *testing.T) {
	for _, declare := range []func(*http.Request){idemhttp.Final, idemhttp.NotExecuted, idemhttp.Succeeded} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		inner, err := idemhttp.New(s.Client, idemhttp.Config{Namespace: "inner"})
		if err != nil {
			t.Fatal(err)
		}
		within := inner.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			declare(r)
			w.WriteHeader(http.StatusInternalServerError)
		}))
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			outer, _ := idem.GrantFrom(r.Context())
			within.ServeHTTP(httptest.NewRecorder(), r)
			if g, _ := idem.GrantFrom(r.Context()); g != outer || g == nil {
				t.Errorf("the grant is %v, was %v", g, outer)
			}
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = s.post(t, "k")
		s.MustBeStored(t, "k", unknown)
		if is := s.Daemon.Record("acme", "inner", "k"); is == nil || is.GetState() == unknown {
			t.Errorf("the inner one is stored as %v", is)
		}
	}
}

// So it is with one that runs unguarded, without a key or while its daemon is away: it has
// no grant, and nothing to declare.
func TestAHandlerThatRunsUnguardedWithinAnotherSeesNoGrant(t *testing.T) {
	nobody := fakedaemon.New()
	nobody.Fault(fakedaemon.Away)
	away := guardtest.Client(t, nobody, idem.Options{Patience: time.Nanosecond})
	for name, c := range map[string]struct {
		config idemhttp.Config
		keyed  bool
	}{"optional": {idemhttp.Config{Need: idemhttp.Optional}, false}, "open": {idemhttp.Config{Open: true}, true}} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		guard, err := idemhttp.New(away, c.config)
		if err != nil {
			t.Fatal(err)
		}
		ran := false
		within := guard.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ran = true
			if g, is := idem.GrantFrom(r.Context()); is {
				t.Errorf("%s: it has the grant %+v", name, g)
			}
			idemhttp.Final(r)
		}))
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			r = r.Clone(r.Context())
			r.Header.Del(idemhttp.KeyHeader)
			if c.keyed {
				r.Header.Set(idemhttp.KeyHeader, "another")
			}
			within.ServeHTTP(httptest.NewRecorder(), r)
			w.WriteHeader(http.StatusInternalServerError)
		}
		_ = s.post(t, "k")
		s.MustBeStored(t, "k", unknown)
		if !ran {
			t.Errorf("%s: it did not run", name)
		}
	}
}

// passOn answers as another server did, headers and all.
func passOn(t *testing.T, from *shop, key string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		r := from.request(t, http.MethodPost, "/orders", `{"n":1}`, key)
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}
}

// A caller that took another guard's word for its own would drop a key whose outcome is
// open.
func TestWhatAnotherGuardSaidOfItsKeyIsNotSaidOfThisOne(t *testing.T) {
	other := open(t, idemhttp.Config{}, idem.Options{})
	_ = other.send(t, other.request(t, http.MethodPost, "/orders", `{"n":2}`, "used"))
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = passOn(t, other, "used")
	a := s.post(t, "k")
	if a.status != http.StatusConflict || a.reason() != idemhttp.ReasonOutcomeUnknown || len(a.header[idemhttp.ReasonHeader]) != 1 {
		t.Errorf("answered %d %v", a.status, a.header)
	}
	s.MustBeStored(t, "k", unknown)
	// A replay passed on is this request's first answer.
	_ = other.post(t, "done")
	s.handle = passOn(t, other, "done")
	for i := range 2 {
		a := s.post(t, "k2")
		if a.status != http.StatusCreated || a.replayed() != (i > 0) || a.reason() != "" || len(a.header[idemhttp.ExpiresHeader]) != 1 {
			t.Errorf("%d: answered %d %v", i, a.status, a.header)
		}
	}
	s.MustBeStored(t, "k2", succeeded)
}

func TestADecisionIDIsStoredAndToldWhereTheAnswerWasNotKept(t *testing.T) {
	for _, size := range []int{10, idem.MaxBodyBytes + 1} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			g, _ := idem.GrantFrom(r.Context())
			g.SetDecisionID("ch_1")
			_, _ = io.WriteString(w, strings.Repeat("x", size))
		}
		wantAnswer(t, s.post(t, "k"), 200, strings.Repeat("x", size), false)
		found, err := s.Client.Lookup(t.Context(), &idemdv1.LookupRequest{Tenant: "acme", Key: "k"})
		if err != nil || found.GetReservation().GetResult().GetDecisionId() != "ch_1" {
			t.Errorf("Lookup shows %q, %v", found.GetReservation().GetResult().GetDecisionId(), err)
		}
		again := s.post(t, "k")
		if size == 10 {
			wantAnswer(t, again, 200, strings.Repeat("x", size), true)
			continue
		}
		wantRefusal(t, again, 200, idemhttp.ReasonAnswerNotKept, false)
		var told struct {
			DecisionID string `json:"decision_id"`
		}
		if err := json.Unmarshal([]byte(again.body), &told); err != nil || told.DecisionID != "ch_1" {
			t.Errorf("it tells %s", again.body)
		}
	}
}

func TestWhereABodyIsKeptElsewhereItsReferenceIsTold(t *testing.T) {
	s := open(t, idemhttp.Config{Reconcile: func(context.Context, *http.Request, *idem.Unresolved) (idem.Verdict, error) {
		return idem.WasExecuted(&idem.Result{Status: 201, BodyOmitted: true, BodyRef: "blob-7"}), nil
	}}, idem.Options{})
	s.handle = answering(http.StatusInternalServerError, "")
	_ = s.post(t, "k")
	again := s.post(t, "k")
	wantRefusal(t, again, 201, idemhttp.ReasonAnswerNotKept, false)
	if !strings.Contains(again.body, `"body_ref":"blob-7"`) {
		t.Errorf("it tells %s", again.body)
	}
}

package idemhttp_test

import (
	"io"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Else whoever guesses a key reads another's answer.
func TestAStatusHandlerWithoutAStatusPathShowsNothing(t *testing.T) {
	for _, subject := range []func(*http.Request) (string, error){nil, from("X-User")} {
		s := newShop(t, idemhttp.Config{Subject: subject}, idem.Options{})
		mux := http.NewServeMux()
		mux.Handle("/status/", s.guard.StatusHandler())
		mux.Handle("/", s.guard.Middleware(s))
		s.serve(t, mux)
		r := s.request(t, "POST", "/orders", "1", "k")
		r.Header.Set("X-User", "ann")
		wantAnswer(t, s.send(t, r), 201, `{"order":1,"of":1}`, false)
		calls := s.Daemon.Calls()
		r = s.request(t, "GET", "/status/"+encoded("k"), "")
		r.Header.Set("X-User", "bob")
		wantRefusal(t, s.send(t, r), 404, idemhttp.ReasonNoSuchRequest, true)
		if s.Daemon.Calls() != calls {
			t.Error("it has looked")
		}
	}
}

// The key was forgotten, and somebody else uses it: the old address is not one of the new
// request's.
func TestAStatusAddressIsOfOneLifeOfItsKey(t *testing.T) {
	config := idemhttp.Config{StatusPath: "/idempotency/", StatusSecret: []byte("0123456789abcdef"), Subject: from("X-User"), Wait: -1}
	s := open(t, config, idem.Options{})
	as := func(on *shop, method, path, user, body string) *answer {
		r := on.request(t, method, path, body, "k")
		r.Header.Set("X-User", user)
		return on.send(t, r)
	}
	var at string
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		at = as(s, "POST", "/orders", "bob", "1").header.Get("Location")
		receipt(w, r)
	}
	_ = as(s, "POST", "/orders", "bob", "1")
	wantAnswer(t, as(s, "GET", at, "bob", ""), 201, `{"order":1,"of":1}`, true)
	next := open(t, config, idem.Options{}) // of a daemon that has forgotten it
	for _, user := range []string{"ann", "bob"} {
		next.Daemon.Forget("acme", "", "k")
		_ = as(next, "POST", "/orders", user, "2")
		wantRefusal(t, as(next, "GET", at, "bob", ""), 404, idemhttp.ReasonNoSuchRequest, true)
	}
}

// A guess costs as much, and tells as little, whether or not there is such a key.
func TestAStatusAddressIsLookedUpWhateverItsSignature(t *testing.T) {
	s := open(t, idemhttp.Config{StatusPath: "/idempotency/", StatusSecret: []byte("0123456789abcdef")}, idem.Options{})
	_ = s.post(t, "there")
	lookups := 0
	s.Daemon.Fault(func(m proto.Message) error {
		if _, is := m.(*idemdv1.LookupRequest); is {
			lookups++
		}
		return nil
	})
	var told []string
	for i, key := range []string{"there", "not-there"} {
		a := s.send(t, s.request(t, "GET", "/idempotency/"+encoded(key)+".AAAA", ""))
		wantRefusal(t, a, 404, idemhttp.ReasonNoSuchRequest, true)
		if told = append(told, a.body); lookups != i+1 {
			t.Errorf("%d look-ups after %d guesses", lookups, i+1)
		}
	}
	if told[0] != told[1] {
		t.Errorf("it tells %q", told)
	}
}

func TestAStatusResourceIsCachedByNobodyWhateverTheAnswerSays(t *testing.T) {
	s := open(t, idemhttp.Config{StatusPath: "/idempotency/", Headers: []string{"Cache-Control", "Location"}}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=600")
		_, _ = io.WriteString(w, "x")
	}
	for range 2 { // the answer itself is as the handler gave it
		if a := s.post(t, "k"); a.header.Get("Cache-Control") != "public, max-age=600" {
			t.Errorf("headers %v", a.header)
		}
	}
	a := s.send(t, s.request(t, "GET", "/idempotency/"+encoded("k"), ""))
	if wantAnswer(t, a, 200, "x", true); len(a.header["Cache-Control"]) != 1 || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", a.header)
	}
}

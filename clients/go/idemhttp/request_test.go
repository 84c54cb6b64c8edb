package idemhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// unsized sends a body without telling how long it is.
func unsized(r *http.Request) *http.Request {
	r.ContentLength, r.GetBody = -1, nil
	r.Body = io.NopCloser(io.MultiReader(r.Body))
	return r
}

// Its fingerprint would be that of an empty body, and another amount the same request.
func TestABodyThatWasReadBeforeTheGuardIsRefusedAndToldOf(t *testing.T) {
	const form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
	for name, c := range map[string]struct {
		before  func(*http.Request)
		kind    string
		body    string
		unsized bool
		refused bool
	}{
		"a form":                         {func(r *http.Request) { _ = r.PostFormValue("csrf") }, form, "csrf=1&amount=1", false, true},
		"a form of no length":            {func(r *http.Request) { _ = r.PostFormValue("csrf") }, form, "csrf=1&amount=1", true, true},
		"a form in parts":                {func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) }, parts, "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n", true, true},
		"half of it":                     {func(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, 3) }, "text/plain", "amount", false, true},
		"asked for a form that it isn't": {func(r *http.Request) { _ = r.FormValue("csrf") }, "application/json", `{"n":1}`, true, false},
		"read, and given back": {func(r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			_ = r.ParseForm()
			r.Body = io.NopCloser(bytes.NewReader(body))
		}, form, "amount=1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			s := newShop(t, idemhttp.Config{Validate: func(*http.Request) error { asked = true; return nil }}, idem.Options{})
			guarded := s.guard.Middleware(s)
			s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.before(r)
				guarded.ServeHTTP(w, r)
			}))
			r := s.request(t, "POST", "/orders", c.body, "k")
			if r.Header.Set("Content-Type", c.kind); c.unsized {
				r = unsized(r)
			}
			a := s.send(t, r)
			if !c.refused {
				wantAnswer(t, a, 201, `{"order":1,"of":`+c.body+`}`, false)
				return
			}
			wantRefusal(t, a, 503, idemhttp.ReasonGuardRefused, true)
			if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Refused || got[0].Err == nil || !strings.Contains(got[0].Err.Error(), "before the guard") {
				t.Errorf("observed %+v", got)
			}
			if s.MustHaveRun(t, 0); asked || s.Daemon.Calls() != 0 {
				t.Error("somebody was asked about a body that is not there")
			}
		})
	}
}

func TestAnEmptyTenantIsRefusedAndSharesNoKeys(t *testing.T) {
	s := open(t, idemhttp.Config{StatusPath: "/idempotency/", Tenant: func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }}, idem.Options{})
	wantRefusal(t, s.post(t, "k"), 403, "", true)
	if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Refused || got[0].Err == nil {
		t.Errorf("observed %+v", got)
	}
	wantRefusal(t, s.send(t, s.request(t, "GET", "/idempotency/"+encoded("k"), "")), 403, "", true)
	if s.MustHaveRun(t, 0); s.Daemon.Calls() != 0 {
		t.Error("something was reserved")
	}
}

// Whoever parses the form, and however the handler runs.
func TestTheFilesOfAFormAreRemovedAfterTheHandler(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var sent bytes.Buffer
	form := multipart.NewWriter(&sent)
	file, err := form.CreateFormFile("file", "file.bin")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write(make([]byte, 1<<20))
	form.Close()
	files := func() int {
		all, _ := filepath.Glob(filepath.Join(dir, "multipart-*"))
		return len(all)
	}
	parse := func(r *http.Request) error { return r.ParseMultipartForm(1) } // all of it in files
	for name, c := range map[string]idemhttp.Config{
		"guarded": {}, "off": {Need: idemhttp.Off}, "optional": {Need: idemhttp.Optional}, "another method": {Methods: []string{"PUT"}},
		"optional, validated": {Need: idemhttp.Optional, Validate: parse}, "validated": {Validate: parse},
		"tenant": {Tenant: func(r *http.Request) (string, error) { return "acme", parse(r) }},
	} {
		s := newShop(t, c, idem.Options{})
		s.handle = func(_ http.ResponseWriter, r *http.Request) {
			if err := parse(r); err != nil || files() != 1 {
				t.Errorf("%s: %d files, %v", name, files(), err)
			}
		}
		guarded := s.guard.Middleware(s)
		var left int
		s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guarded.ServeHTTP(w, r)
			left = files()
		}))
		r := s.request(t, "POST", "/orders", sent.String())
		r.Header.Set("Content-Type", form.FormDataContentType())
		if c.Need != idemhttp.Optional {
			r.Header.Set(idemhttp.KeyHeader, "k")
		}
		if a := s.send(t, r); a.status != 200 || left != 0 {
			t.Errorf("%s: answered %d %s, %d files are left", name, a.status, a.body, left)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 0 {
		t.Errorf("in the end %v, %v", all, err)
	}
}

// It begins before the body is there, and there may be more of it than a guard takes.
func TestWithoutAKeyABodyPassesAsItComes(t *testing.T) {
	s := open(t, idemhttp.Config{Need: idemhttp.Optional, MaxBodyBytes: 4}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		_, _ = io.Copy(w, r.Body)
	}
	body, more := io.Pipe()
	defer more.Close()
	r := s.request(t, "POST", "/orders", "")
	r.ContentLength, r.GetBody, r.Body = -1, nil, body
	response, err := s.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.WriteString(more, "longer than four bytes")
	more.Close()
	if got, err := io.ReadAll(response.Body); err != nil || string(got) != "longer than four bytes" {
		t.Errorf("it answers %q, %v", got, err)
	}
	checked := open(t, idemhttp.Config{Need: idemhttp.Optional, MaxBodyBytes: 4, Validate: func(*http.Request) error { return nil }}, idem.Options{})
	wantRefusal(t, checked.send(t, checked.request(t, "POST", "/orders", "12345")), 413, idemhttp.ReasonRequestTooLarge, false)
}

func TestALimitBeforeTheGuardIsNamedWhereItIsTheOneThatWasHit(t *testing.T) {
	s := newShop(t, idemhttp.Config{MaxBodyBytes: 1000}, idem.Options{})
	s.serve(t, http.MaxBytesHandler(s.guard.Middleware(s), 100))
	for size, want := range map[int]string{200: "may be 100 bytes", 2000: "may be 1000 bytes"} {
		if a := s.send(t, s.request(t, "POST", "/orders", strings.Repeat("x", size), "k")); a.status != 413 || !strings.Contains(a.body, want) {
			t.Errorf("%d bytes: answered %d %s, want %q", size, a.status, a.body, want)
		}
	}
}

func TestTrailersOfARequestAreSeenAnnouncedOrNot(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Trailer) }
	for key, announce := range map[string]string{"k1": "", "k2": "Trailer: X-Sum\r\n"} {
		conn, err := new(net.Dialer).DialContext(guardtest.Bounded(t), "tcp", s.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: "+key+"\r\n"+announce+
			"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\nX-Sum: 7\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "map[X-Sum:[7]]" {
			t.Errorf("announced by %q: it sees %s, %v", announce, body, err)
		}
	}
}

// It has named the request around, and would name two others in it alike.
func TestAKeyOfTheContextAroundAHandlerReachesNoRequestOfTheHandlers(t *testing.T) {
	sent := make(chan string, 2)
	client := &http.Client{Transport: &idemhttp.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
		sent <- r.Header.Get(idemhttp.KeyHeader)
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody}, nil
	})}}
	for name, c := range map[string]struct {
		config idemhttp.Config
		keyed  bool
	}{
		"guarded": {idemhttp.Config{}, true}, "optional": {idemhttp.Config{Need: idemhttp.Optional}, false}, "off": {idemhttp.Config{Need: idemhttp.Off}, true},
		"open": {idemhttp.Config{Open: true}, true}, "another method": {idemhttp.Config{Methods: []string{"PUT"}}, true},
	} {
		s := newShop(t, c.config, idem.Options{Patience: time.Millisecond})
		if c.config.Open {
			s.Daemon.Fault(fakedaemon.Away)
		}
		s.handle = func(_ http.ResponseWriter, r *http.Request) {
			for range 2 {
				q, _ := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://other/", nil)
				response, err := client.Do(q)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
		}
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("1"))
		r = r.WithContext(idemhttp.WithKey(guardtest.Bounded(t), "the-request's"))
		if c.keyed {
			r.Header.Set(idemhttp.KeyHeader, "the-request's")
		}
		s.guard.Middleware(s).ServeHTTP(httptest.NewRecorder(), r)
		one, other := <-sent, <-sent
		if one == other || one == "the-request's" || other == "the-request's" || one == "" {
			t.Errorf("%s: the handler's requests have the keys %q and %q", name, one, other)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What the docs say of a Validate that changes its request.
func TestWhatValidateChangesTheHandlerSeesAndTheFingerprintDoesNot(t *testing.T) {
	n := 0
	s := open(t, idemhttp.Config{Validate: func(r *http.Request) error {
		n++
		r.Header.Set("X-Seen", fmt.Sprint(n))
		return nil
	}}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Header.Get("X-Seen")) }
	wantAnswer(t, s.post(t, "k"), 200, "1", false)
	wantAnswer(t, s.post(t, "k"), 200, "1", true)
}

// A reconciler is asked with the body that is to be found.
func TestAReconcilerCanReadTheBodyEachTimeItIsAsked(t *testing.T) {
	s := open(t, idemhttp.Config{Wait: -1, Reconcile: func(_ context.Context, r *http.Request, _ *idem.Unresolved) (idem.Verdict, error) {
		body, err := io.ReadAll(r.Body)
		return idem.Verdict{}, errors.Join(err, errors.New("asked with "+string(body)))
	}}, idem.Options{})
	s.handle = answering(500, "")
	_ = s.post(t, "k")
	for range 2 {
		_ = s.post(t, "k")
		if got := s.Events.Take(); !strings.Contains(fmt.Sprint(got[len(got)-1].Err), `asked with {"n":1}`) {
			t.Errorf("observed %v", got)
		}
	}
}

// http.TimeoutHandler stands before the guard: its caller is gone, the work is not.
func TestATimeoutBeforeTheGuardLosesNoOutcome(t *testing.T) {
	s := newShop(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		receipt(w, r)
	}
	guarded := s.guard.Middleware(s)
	impatient := http.TimeoutHandler(guarded, 200*time.Millisecond, "too slow")
	s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Patient") == "" {
			impatient.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	}))
	if a := s.post(t, "k"); a.status != 503 || a.reason() != "" || !idemhttp.KeepKey(&http.Response{StatusCode: a.status, Header: a.header}, nil) {
		t.Errorf("answered %d %v %s", a.status, a.header, a.body)
	}
	r := s.request(t, "POST", "/orders", `{"n":1}`, "k")
	r.Header.Set("X-Patient", "1")
	wantAnswer(t, s.send(t, r), 201, receiptOfOne, true)
	s.MustHaveRun(t, 1)
}

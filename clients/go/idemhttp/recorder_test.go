package idemhttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// In several Writes, around the limit: kept whole, or not at all.
func TestAReplayIsNeverThePrefixOfAnAnswer(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	for _, over := range []int{-1, 0, 1, 9 * idem.MaxBodyBytes} {
		size := idem.MaxBodyBytes + over
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			part := bytes.Repeat([]byte("x"), 1<<16-1)
			for left := size; left > 0; {
				n, err := w.Write(part[:min(left, len(part))])
				if err != nil {
					t.Error(err)
				}
				left -= n
			}
		}
		key := fmt.Sprint("over", over)
		wantAnswer(t, s.post(t, key), 201, strings.Repeat("x", size), false)
		again := s.post(t, key)
		if over > 0 {
			wantRefusal(t, again, 201, idemhttp.ReasonAnswerNotKept, false)
		} else {
			wantAnswer(t, again, 201, strings.Repeat("x", size), true)
		}
		if !again.replayed() || again.header.Get("Location") != "/orders/1" {
			t.Errorf("%s: headers %v", key, again.header)
		}
		s.MustBeStored(t, key, succeeded)
		if is := s.Daemon.Record("acme", "", key); is.GetResult().GetBodyOmitted() != (over > 0) {
			t.Errorf("%s: stored as omitted: %v", key, is.GetResult().GetBodyOmitted())
		}
	}
}

func TestWhatIsFlushedReachesTheCallerBeforeTheHandlerEnds(t *testing.T) {
	for name, flush := range map[string]func(http.ResponseWriter) error{
		"Flusher":            func(w http.ResponseWriter) error { w.(http.Flusher).Flush(); return nil },
		"ResponseController": func(w http.ResponseWriter) error { return http.NewResponseController(w).Flush() },
	} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		seen := make(chan struct{})
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first,")
			if err := flush(w); err != nil {
				t.Error(err)
			}
			<-seen
			_, _ = io.WriteString(w, "second")
		}
		response, err := s.server.Client().Do(s.request(t, "POST", "/orders", `{"n":1}`, "k"))
		if err != nil {
			t.Fatal(err)
		}
		begin := make([]byte, 6)
		if _, err := io.ReadFull(response.Body, begin); err != nil || string(begin) != "first," {
			t.Errorf("%s: %q, %v", name, begin, err)
		}
		s.MustBeStored(t, "k", processing)
		close(seen)
		rest, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(rest) != "second" {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
		if response.Trailer.Get(idemhttp.ExpiresHeader) == "" {
			t.Errorf("%s: trailers %v", name, response.Trailer)
		}
		wantAnswer(t, s.post(t, "k"), 200, "first,second", true)
	}
}

func TestAHijackedConnectionIsTheHandlersAndItsEndingUnknown(t *testing.T) {
	for name, declared := range map[string]func(*http.Request){"": nil, "declared": idemhttp.Succeeded} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrHijacked) {
				t.Errorf("a write after it: %v", err)
			}
			_, _ = rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
			_ = rw.Flush()
			if declared != nil {
				declared(r)
			}
		}
		wantAnswer(t, s.post(t, "k"), 299, "ok", false)
		again := func() *answer { return s.post(t, "k") }
		if declared == nil {
			until(t, func() bool { return s.Daemon.Record("acme", "", "k").GetState() == unknown })
			wantRefusal(t, again(), 409, idemhttp.ReasonOutcomeUnknown, true)
			continue
		}
		until(t, func() bool { return s.Daemon.Record("acme", "", "k").GetState() == succeeded })
		if a := again(); a.reason() != idemhttp.ReasonAnswerNotKept || !a.replayed() {
			t.Errorf("%s: answered %d %v", name, a.status, a.header)
		}
	}
}

// until looks again and again: the hijacked answer is there before its outcome is told.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(limit) {
			t.Fatal("waited for a minute")
		}
		<-time.After(time.Millisecond)
	}
}

// Whoever recovers outside of the guard answers as it likes.
func TestAPanicIsRecordedAndGoesOn(t *testing.T) {
	for _, value := range []any{"in the middle", http.ErrAbortHandler} {
		for mode, want := range map[idem.Mode]any{idem.External: unknown, idem.Transactional: retryable} {
			s := newShop(t, idemhttp.Config{Mode: mode}, idem.Options{})
			heard := make(chan any, 1)
			guarded := s.guard.Middleware(s)
			s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					heard <- recover()
					http.Error(w, "recovered", http.StatusInternalServerError)
				}()
				guarded.ServeHTTP(w, r)
			}))
			s.handle = func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "half")
				panic(value)
			}
			wantAnswer(t, s.post(t, "k"), 500, "recovered\n", false)
			if got := <-heard; got != value {
				t.Errorf("recovered %v, want %v", got, value)
			}
			if is := s.Daemon.Record("acme", "", "k"); is.GetState() != want {
				t.Errorf("stored is %v", is)
			}
		}
	}
}

func TestAPanicWithoutRecoveryBreaksTheConnection(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		panic(http.ErrAbortHandler)
	}
	if a := s.post(t, "k"); a.err == nil {
		t.Errorf("answered %d %q", a.status, a.body)
	}
	wantRefusal(t, s.post(t, "k"), 409, idemhttp.ReasonOutcomeUnknown, true)
	s.MustHaveRun(t, 1)
}

func TestAHandlerThatWritesNothingHasAnswered200(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(http.ResponseWriter, *http.Request) {}
	wantAnswer(t, s.post(t, "k"), 200, "", false)
	wantAnswer(t, s.post(t, "k"), 200, "", true)
	s.MustBeStored(t, "k", succeeded)
}

// It has seen that its context has ended, and returned: that is no success.
func TestAHandlerThatGaveUpWithoutAnAnswerHasNotSucceeded(t *testing.T) {
	for mode, c := range map[idem.Mode]struct {
		stored any
		status int
		reason idemhttp.Reason
	}{idem.External: {unknown, 409, idemhttp.ReasonOutcomeUnknown}, idem.Transactional: {retryable, 503, idemhttp.ReasonNotExecuted}} {
		s := newShop(t, idemhttp.Config{Mode: mode}, idem.Options{})
		guarded := s.guard.Middleware(s)
		s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			s.handle = func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() }
			guarded.ServeHTTP(w, r.WithContext(ctx))
		}))
		wantRefusal(t, s.post(t, "k"), c.status, c.reason, true)
		if is := s.Daemon.Record("acme", "", "k"); is.GetState() != c.stored {
			t.Errorf("stored is %v", is)
		}
	}
}

func TestAnOutcomeIsRecordedAfterItsCallerHasGone(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	ctx, hangUp := context.WithCancel(guardtest.Bounded(t))
	done := make(chan struct{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		hangUp()
		<-r.Context().Done()
		receipt(w, r)
	}
	if a := s.send(t, s.request(t, "POST", "/orders", `{"n":1}`, "k").WithContext(ctx)); !errors.Is(a.err, context.Canceled) {
		t.Errorf("answered %d, %v", a.status, a.err)
	}
	<-done
	wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, true)
	s.MustHaveRun(t, 1)
}

func TestAHandlerThatWritesAfterItHasReturnedIsNotHeard(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	var late http.ResponseWriter
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		late = w
		_, _ = io.WriteString(w, "in time")
	}
	wantAnswer(t, s.post(t, "k"), 200, "in time", false)
	if n, err := late.Write([]byte("too late")); err == nil || n != 0 {
		t.Errorf("wrote %d, %v", n, err)
	}
	late.WriteHeader(http.StatusInternalServerError)
	if err := http.NewResponseController(late).Flush(); err == nil {
		t.Error("flushed")
	}
	if _, _, err := http.NewResponseController(late).Hijack(); err == nil {
		t.Error("hijacked")
	}
	wantAnswer(t, s.post(t, "k"), 200, "in time", true)
}

// Goroutines of the handler's that write while it returns, or panics, and after.
func TestWhatIsReplayedIsWhatWasAnsweredWhoeverStillWrites(t *testing.T) {
	for _, panics := range []bool{false, true} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		refused := make(chan struct{})
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			begun := make(chan struct{})
			go func() {
				defer close(refused)
				for i := 0; ; i++ {
					if _, err := io.WriteString(w, "x"); err != nil {
						return
					}
					if i == 0 {
						close(begun)
					}
				}
			}()
			if <-begun; panics {
				panic(http.ErrAbortHandler)
			}
		}
		first := s.post(t, "k")
		<-refused // else it would go on for ever
		if again := s.post(t, "k"); panics {
			wantRefusal(t, again, 409, idemhttp.ReasonOutcomeUnknown, true)
		} else if again.body != first.body && again.reason() != idemhttp.ReasonAnswerNotKept { // it may have become too large
			t.Errorf("answered %d bytes, replayed %d", len(first.body), len(again.body))
		}
	}
}

// What net/http does with an answer it does behind a guard, too.
func TestAnAnswerIsAsWithoutAGuard(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"WriteHeader twice": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusInternalServerError)
		},
		"Write, then WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			w.WriteHeader(http.StatusInternalServerError)
		},
		"a header too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("Location", "/late")
		},
		"a trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Sum", "1")
		},
		"no body allowed": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("204 with a body: %v", err)
			}
		},
		"more than announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "ok")
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("a longer body: %v", err)
			}
		},
		"a type that is found out": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<!DOCTYPE html>") },
		"a type that is found out from what was flushed": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "%P")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "DF-1.7")
		},
		"no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"ReadFrom": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, bufio.NewReader(strings.NewReader(strings.Repeat("x", 100_000))))
		},
		"deadlines": func(w http.ResponseWriter, _ *http.Request) {
			c := http.NewResponseController(w)
			if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Minute)), c.SetReadDeadline(time.Now().Add(time.Minute)), c.EnableFullDuplex()); err != nil {
				t.Error(err)
			}
		},
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/orders/1", http.StatusSeeOther) },
		"an encoding": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "packed")
			z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			plain, s := open(t, idemhttp.Config{Need: idemhttp.Off}, idem.Options{}), open(t, idemhttp.Config{}, idem.Options{})
			plain.handle, s.handle = handle, handle
			want, first, again := single(t, plain), single(t, s), single(t, s)
			for _, a := range []*answer{first, again} {
				if a.err != nil || a.status != want.status || a.body != want.body || fmt.Sprint(a.header["Content-Type"]) != fmt.Sprint(want.header["Content-Type"]) ||
					a.header.Get("Location") != want.header.Get("Location") || a.header.Get("Content-Encoding") != want.header.Get("Content-Encoding") {
					t.Errorf("answered %d %.60q %v, want %d %.60q %v", a.status, a.body, a.header, want.status, want.body, want.header)
				}
			}
			if first.trailer.Get("X-Sum") != want.trailer.Get("X-Sum") {
				t.Errorf("trailers %v, want %v", first.trailer, want.trailer)
			}
			if !again.replayed() {
				t.Error("it is not a replay")
			}
			s.MustHaveRun(t, 1)
		})
	}
}

// single sends one request without following redirects or unpacking what comes.
func single(t *testing.T, s *shop) *answer {
	t.Helper()
	r := s.request(t, "POST", "/orders", `{"n":1}`, "k")
	r.Header.Set("Accept-Encoding", "identity")
	response, err := s.server.Client().Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return &answer{response.StatusCode, response.Header, response.Trailer, string(body), err}
}

func TestInformationalAnswersGoOutAtOnceAndAreNotTheAnswer(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	hinted := make(chan string, 1)
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		if link := <-hinted; link != "</style.css>" { // the caller has it already
			t.Errorf("hinted %q", link)
		}
		receipt(w, r)
	}
	r := s.request(t, "POST", "/orders", `{"n":1}`, "k")
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		if code == http.StatusEarlyHints {
			hinted <- h.Get("Link")
		}
		return nil
	}})
	wantAnswer(t, s.send(t, r.WithContext(ctx)), 201, receiptOfOne, false)
	wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, true)
}

func TestAHeadHasItsStatusAndHeaders(t *testing.T) {
	s := open(t, idemhttp.Config{Methods: []string{"HEAD"}}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
	}
	for i := range 2 {
		a := s.send(t, s.request(t, "HEAD", "/orders", "", "k"))
		if wantAnswer(t, a, 201, "", i > 0); a.header.Get("Location") != "/orders/1" {
			t.Errorf("headers %v", a.header)
		}
	}
}

// A body that is shorter than announced is no answer to give again.
func TestAnAnswerThatBreaksOffIsNotReplayedAsWhole(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "only this")
	}
	if a := s.post(t, "k"); a.err == nil {
		t.Errorf("answered %d %q", a.status, a.body)
	}
	wantRefusal(t, s.post(t, "k"), 200, idemhttp.ReasonAnswerNotKept, false)
}

func TestAnInvalidStatusPanicsAsInNetHTTP(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = answering(99, "")
	if a := s.post(t, "k"); a.err == nil {
		t.Errorf("answered %d", a.status)
	}
	s.MustBeStored(t, "k", unknown)
}

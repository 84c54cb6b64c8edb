package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
)

// As net/http: what was refused counts as written, so nothing that comes after it gets in.
func TestWhatIsWrittenBeyondAContentLengthBreaksTheAnswerAsWithoutAGuard(t *testing.T) {
	for name, parts := range map[string][]string{"at once": {"abc", "d"}, "later": {"a", "bc", "d"}} {
		var refused [2][]bool
		shops := []*shop{open(t, idemhttp.Config{Need: idemhttp.Off}, idem.Options{}), open(t, idemhttp.Config{}, idem.Options{})}
		for i, s := range shops {
			s.handle = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "2")
				for _, part := range parts {
					_, err := io.WriteString(w, part)
					refused[i] = append(refused[i], errors.Is(err, http.ErrContentLength))
				}
			}
		}
		plain, guarded := single(t, shops[0]), single(t, shops[1])
		if plain.err == nil || guarded.err == nil || guarded.status != plain.status || guarded.body != plain.body || !slices.Equal(refused[0], refused[1]) {
			t.Errorf("%s: answered %q, %v (refused %v), without a guard %q, %v (%v)", name, guarded.body, guarded.err, refused[1], plain.body, plain.err, refused[0])
		}
		wantRefusal(t, shops[1].post(t, "k"), 200, idemhttp.ReasonAnswerNotKept, false)
	}
}

// Under the race detector: a goroutine of the handler's that goes on with the header. Where
// there may be trailers net/http itself reads it once more.
func TestTheHeaderOfAHandlerThatHasReturnedIsNotRead(t *testing.T) {
	for _, status := range []int{200, 404, 500} {
		s := open(t, idemhttp.Config{}, idem.Options{})
		stop, stopped := make(chan struct{}), make(chan struct{})
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("X-Own", "1")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "x")
			go func() {
				defer close(stopped)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						h.Set(fmt.Sprint("X-", i%50), "late")
					}
				}
			}()
		}
		a := s.post(t, "k")
		close(stop)
		<-stopped
		if a.err != nil || a.status != status || a.body != "x" || a.header.Get("X-Own") != "1" || a.header.Get("X-1") != "" {
			t.Errorf("answered %d %q %v, %v", a.status, a.body, a.header, a.err)
		}
	}
}

func TestAHandlerSeesAndChangesTheHeadersThatStandBeforeIt(t *testing.T) {
	s := newShop(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		if w.Header().Get("X-Before") != "1" {
			t.Errorf("it sees %v", w.Header())
		}
		w.Header().Del("X-Before")
		w.Header().Set("X-Changed", "by the handler")
	}
	guarded := s.guard.Middleware(s)
	s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Before", "1")
		w.Header().Set("X-Changed", "before")
		w.Header().Set("X-Kept", "1")
		guarded.ServeHTTP(w, r)
	}))
	if a := s.post(t, "k"); a.header.Get("X-Before") != "" || a.header.Get("X-Changed") != "by the handler" || a.header.Get("X-Kept") != "1" {
		t.Errorf("headers %v", a.header)
	}
}

// In whatever way a trailer is made known; what another guard has said in one is not passed
// on as this one's.
func TestTrailersAreAsWithoutAGuard(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum, X-None")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Sum", "1")
			w.Header().Set("X-Other", "2")
		},
		"announced and changed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set("X-Sum", "0")
			_, _ = io.WriteString(w, "x")
			w.Header().Set("X-Sum", "1")
		},
		"by its name": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", 5000))
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		},
		"by its name, flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		},
		"by its name, and short": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "x")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
		},
	} {
		plain, s := open(t, idemhttp.Config{Need: idemhttp.Off}, idem.Options{}), open(t, idemhttp.Config{}, idem.Options{})
		plain.handle, s.handle = handle, handle
		want, got := single(t, plain), single(t, s)
		delete(got.trailer, idemhttp.ExpiresHeader)
		if got.err != nil || got.body != want.body || fmt.Sprint(got.trailer) != fmt.Sprint(want.trailer) || got.header.Get("X-Other") != want.header.Get("X-Other") {
			t.Errorf("%s: trailers %v %v, want %v", name, got.trailer, got.err, want.trailer)
		}
	}
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+idemhttp.ExpiresHeader, "never")
	}
	if a := s.post(t, "k"); len(a.trailer[idemhttp.ExpiresHeader]) != 1 || a.trailer.Get(idemhttp.ExpiresHeader) == "never" {
		t.Errorf("trailers %v", a.trailer)
	}
}

// In the order of the list, and an encoding before all: without it the body can't be read.
func TestOfHeadersThatAreTooManyThoseThatFitAreKeptTheFirstOnesFirst(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	for name, link := range map[string][]string{"too long": {strings.Repeat("x", idem.MaxHeaderBytes)}, "too many": slices.Repeat([]string{"<a>"}, 62), "all of it": slices.Repeat([]string{"<a>"}, 61)} {
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Link"] = link
			w.Header().Set("Location", "/orders/1")
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Encoding", "x-mine")
			_, _ = io.WriteString(w, "body")
		}
		key := strings.ReplaceAll(name, " ", "-")
		wantAnswer(t, s.post(t, key), 200, "body", false)
		events := s.Events.Take()
		again := s.post(t, key)
		wantAnswer(t, again, 200, "body", true)
		h, fits := again.header, name == "all of it"
		if h.Get("Location") != "/orders/1" || h.Get("ETag") != `"1"` || h.Get("Content-Encoding") != "x-mine" || (len(h["Link"]) == len(link)) != fits || len(h["Link"]) > 0 != fits {
			t.Errorf("%s: replayed %d of Link, %v", name, len(h["Link"]), h)
		}
		if _ = s.Events.Take(); len(events) != 1 || (events[0].Reduced == nil) != fits || !fits && !strings.Contains(events[0].Reduced.Error(), "Link") {
			t.Errorf("%s: observed %+v", name, events)
		}
	}
}

// Neither the replay nor the store shall have somebody's session.
func TestHeadersThatAreNotOnTheListReachNoStore(t *testing.T) {
	for _, c := range []struct {
		listed []string
		code   int
		want   string
	}{{nil, 201, "[Location]"}, {nil, 404, "[Location]"}, {nil, 500, "[Location]"}, {[]string{}, 201, "[]"}, {[]string{"set-cookie"}, 201, "[Set-Cookie]"}} {
		s := open(t, idemhttp.Config{Headers: c.listed}, idem.Options{})
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range map[string]string{"Set-Cookie": "session=1", "X-Trace": "7", "Authorization": "secret", "Location": "/orders/1"} {
				w.Header().Set(name, value)
			}
			w.WriteHeader(c.code)
		}
		if a := s.post(t, "k"); a.header.Get("Set-Cookie") != "session=1" {
			t.Errorf("%d: the first caller gets %v", c.code, a.header)
		}
		names := []string{}
		for _, h := range s.Daemon.Record("acme", "", "k").GetResult().GetHeaders() {
			names = append(names, h.GetName())
		}
		if fmt.Sprint(names) != c.want {
			t.Errorf("%d: stored are %v, want %s", c.code, names, c.want)
		}
	}
}

// A body that would come back as another type, or not be readable, is not given again.
func TestABodyWhoseTypeOrEncodingCannotBeKeptIsNotReplayed(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	for i, set := range []func(http.Header){
		func(h http.Header) { h.Set("Content-Type", "multipart/mixed; boundary="+strings.Repeat("b", 300)) },
		func(h http.Header) { h.Set("Content-Type", "text/plain; name=\"\xff\"") },
		func(h http.Header) { h.Set("Content-Encoding", strings.Repeat("x", idem.MaxHeaderBytes)) },
	} {
		s.handle = func(w http.ResponseWriter, _ *http.Request) {
			set(w.Header())
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "body")
		}
		key := fmt.Sprint("k", i)
		wantAnswer(t, s.post(t, key), 201, "body", false)
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Executed || got[0].Reduced == nil {
			t.Errorf("%d: observed %+v", i, got)
		}
		a := s.post(t, key)
		if wantRefusal(t, a, 201, idemhttp.ReasonAnswerNotKept, false); a.header.Get("Location") != "/orders/1" {
			t.Errorf("%d: headers %v", i, a.header)
		}
		_ = s.Events.Take()
	}
	s.handle = answering(200, strings.Repeat("x", idem.MaxBodyBytes+1))
	_ = s.post(t, "large")
	if got := s.Events.Take(); len(got) != 1 || got[0].Reduced == nil {
		t.Errorf("large: observed %+v", got)
	}
}

// net/http lets handlers answer with any status of three digits.
func TestAStatusThatNoStandardHasIsReplayedAsItWas(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	for _, code := range []int{600, 699, 999} {
		key := fmt.Sprint(code)
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			idemhttp.Final(r)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "so it ended")
		}
		wantAnswer(t, s.post(t, key), code, "so it ended", false)
		wantAnswer(t, s.post(t, key), code, "so it ended", true)
		s.handle = answering(code, "nobody knows")
		_ = s.post(t, key+"-undeclared")
		s.MustBeStored(t, key+"-undeclared", unknown)
	}
}

// What a handler has set before it gave up is no part of the guard's answer, also where
// something of it has gone out in an informational one.
func TestAGuardsOwnAnswerHasNoneOfTheHandlersHeaders(t *testing.T) {
	for mode, want := range map[idem.Mode]int{idem.External: 409, idem.Transactional: 503} {
		for name, inform := range map[string]bool{"held back": false, "hinted": true} {
			s := newShop(t, idemhttp.Config{Mode: mode}, idem.Options{})
			guarded := s.guard.Middleware(s)
			s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				w.Header().Set("X-Before", "1")
				s.handle = func(w http.ResponseWriter, _ *http.Request) {
					for _, of := range []string{"Set-Cookie", "Content-Encoding", "ETag", "Content-Length", "X-Before"} {
						w.Header().Set(of, "2")
					}
					if inform {
						w.WriteHeader(http.StatusEarlyHints)
					}
					cancel()
				}
				guarded.ServeHTTP(w, r.WithContext(ctx))
			}))
			a := s.post(t, "k")
			wantRefusal(t, a, want, a.reason(), true)
			for _, of := range []string{"Set-Cookie", "Content-Encoding", "ETag"} {
				if a.header.Get(of) != "" {
					t.Errorf("%s: %s is the handler's", name, of)
				}
			}
			if a.header.Get("X-Before") != "1" {
				t.Errorf("%s: headers %v", name, a.header)
			}
		}
	}
}

// Whatever stands before the guard may have announced another length.
func TestAGuardsOwnAnswerIsWholeWhateverLengthWasAnnouncedBeforeIt(t *testing.T) {
	s := newShop(t, idemhttp.Config{}, idem.Options{})
	guarded := s.guard.Middleware(s)
	s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		guarded.ServeHTTP(w, r)
	}))
	wantRefusal(t, s.send(t, s.request(t, "POST", "/orders", "1")), 400, idemhttp.ReasonKeyRequired, false)
}

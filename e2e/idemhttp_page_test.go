package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/examples/charge/child"
)

// docs/guards.md says how a guarded HTTP handler can end and what follows. Each row is
// walked in each of its modes, on each store.
func TestEveryEndingOfAGuardedHTTPHandlerIsAsThePageSays(t *testing.T) {
	page[*httpWalk]{
		rows: endingRows(t, "guards.md", "### How an HTTP handler can end", "the handler"), begin: newHTTPWalk, ways: httpEndings(),
	}.walk(t)
}

// httpWalk is one row of the HTTP guard's.
type httpWalk struct {
	guardWalk

	// What an ending may change, before first.
	config idemhttp.Config
	// before and behind are middleware on either side of the guard.
	before, behind func(http.Handler) http.Handler
	// end is what the first handler does; the other's answers its attempt's number.
	end  http.HandlerFunc
	code int    // the status of its answer
	body string // that is recognised as its answer
	ctx  context.Context
	sent string // the request's body
}

func newHTTPWalk(t *testing.T, d *child.Daemon, key string, mode idem.Mode) *httpWalk {
	w := &httpWalk{
		guardWalk: newGuardWalk(t, d, key), before: same, behind: same, sent: "order",
		config: idemhttp.Config{Mode: mode, Lease: time.Minute}, ctx: harness.Bounded(t),
	}
	w.answers(http.StatusCreated)
	return w
}

func same(h http.Handler) http.Handler { return h }

// answers lets the handler answer so, after it has done something else.
func (w *httpWalk) answers(code int, before ...func(http.ResponseWriter, *http.Request)) {
	w.code, w.body = code, "so it ended"
	if code == http.StatusNoContent || code == http.StatusNotModified {
		w.body = ""
	}
	w.end = func(rw http.ResponseWriter, r *http.Request) {
		for _, f := range before {
			f(rw, r)
		}
		rw.WriteHeader(code)
		_, _ = io.WriteString(rw, w.body)
	}
}

// attemptedHTTP answers with its attempt.
func attemptedHTTP(rw http.ResponseWriter, r *http.Request) {
	g, guarded := idem.GrantFrom(r.Context())
	if !guarded {
		http.Error(rw, "it runs unguarded", http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprint(rw, "attempt ", g.Attempt)
}

func (w *httpWalk) serve(daemon string, o idem.Options, handler http.HandlerFunc) string {
	guard := guardHTTP(w.T, daemon, w.config, o)
	return serveHTTP(w.T, w.before(guard.Middleware(w.behind(handler))))
}

// first asks the replica on which the row happens.
func (w *httpWalk) first() (said, full string) {
	return w.said(post(w.ctx, w.T, w.serve(w.proxy.Addr(), w.options, w.end), w.key, w.sent))
}

// retry is the same request, made by somebody else, who has time.
func (w *httpWalk) retry() (said, full string) {
	w.config.MinRemaining = 0
	return w.said(post(harness.Bounded(w.T), w.T, w.serve(w.daemon.GRPC, idem.Options{}, attemptedHTTP), w.key, w.sent))
}

// said puts an answer into the page's words.
func (w *httpWalk) said(got heard) (text, full string) {
	full = fmt.Sprintf("%d %.100q, %v", got.status, got.body, got.err)
	switch {
	case errors.Is(got.err, context.Canceled):
		return "nothing: it has gone", full
	case got.err != nil:
		return "a broken connection", full
	case got.status == w.code && got.body == w.body && w.body != "nothing":
		text = "the answer"
	case strings.HasPrefix(got.body, "attempt "):
		text = "the answer of " + got.body
	case got.status == w.code && got.reason == idemhttp.ReasonAnswerNotKept:
		text = "its status"
	default:
		text = fmt.Sprint(got.status)
	}
	if got.reason != "" {
		text += ", " + string(got.reason)
	}
	if got.replayed && got.reason != idemhttp.ReasonAnswerNotKept {
		text += ", replayed"
	}
	return text, full
}

// httpEndings are the ways in which the rows can come about, by their names on the page.
func httpEndings() map[string][]func(*httpWalk) {
	all := map[string][]func(*httpWalk){}
	for name, way := range namedHTTPEndings() {
		all[name] = []func(*httpWalk){way}
	}
	for name, codes := range map[string][]int{
		"2xx, 3xx":                     {200, 201, 202, 204, 299, 301, 303, 304},
		"401, 412, 421, 425, 428, 429": {401, 412, 421, 425, 428, 429},
		"another 4xx":                  {400, 402, 403, 404, 409, 410, 422, 451},
		"408, 499, 5xx":                {408, 499, 500, 501, 502, 503, 504, 599},
	} {
		for _, code := range codes {
			all[name] = append(all[name], func(w *httpWalk) { w.answers(code) })
		}
	}
	for _, value := range []any{"in the middle", http.ErrAbortHandler} {
		const name = "a panic, http.ErrAbortHandler"
		all[name] = append(all[name], func(w *httpWalk) { w.end = func(http.ResponseWriter, *http.Request) { panic(value) } })
	}
	return all
}

func namedHTTPEndings() map[string]func(*httpWalk) {
	declared := func(declare func(*http.Request), code int) func(*httpWalk) {
		return func(w *httpWalk) { w.answers(code, func(_ http.ResponseWriter, r *http.Request) { declare(r) }) }
	}
	return map[string]func(*httpWalk){
		"no answer":      func(w *httpWalk) { w.end, w.body = func(http.ResponseWriter, *http.Request) {}, "nothing" },
		"Succeeded(r)":   declared(idemhttp.Succeeded, 503),
		"NotExecuted(r)": declared(idemhttp.NotExecuted, 503),
		"Final(r)":       declared(idemhttp.Final, 503),
		"Unknown(r)":     declared(idemhttp.Unknown, 404),

		"a panic, recovery before the guard": func(w *httpWalk) { w.end, w.before = panicsHTTP, recovers },
		"a panic, recovery behind the guard": func(w *httpWalk) { w.end, w.behind = panicsHTTP, recovers },

		"an answer that was flushed": func(w *httpWalk) { w.answers(http.StatusOK, flushes) },
		"an answer that was flushed, then a panic": func(w *httpWalk) {
			w.end = func(rw http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(rw, "half")
				flushes(rw, r)
				panic("in the middle")
			}
		},
		"a connection that it hijacked": func(w *httpWalk) { w.code, w.end = 299, hijacks },
		"an answer, WriteHeader twice": func(w *httpWalk) {
			w.answers(http.StatusAccepted, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) })
		},
		"an answer, and it writes on after its return":             writesOn,
		"an answer after an informational one (1xx)":               func(w *httpWalk) { w.answers(http.StatusOK, hints) },
		"an answer too large to keep":                              func(w *httpWalk) { w.answers(http.StatusCreated); w.body = strings.Repeat("x", idem.MaxBodyBytes+1) },
		"an answer shorter than its Content-Length":                func(w *httpWalk) { w.answers(http.StatusOK, announces) },
		"an answer longer than its Content-Length":                 func(w *httpWalk) { w.answers(http.StatusOK, announcesLess) },
		"an answer, its caller gone":                               func(w *httpWalk) { w.answers(http.StatusOK, w.leaves()) },
		"no answer, its caller gone":                               func(w *httpWalk) { w.end = w.leaves() },
		"an answer, its lease lost":                                httpLeaseLost,
		"an answer, the daemon away for longer than FinishTimeout": func(w *httpWalk) { w.loseComplete(); w.heal = func() { w.proxy.Break(nil) } },
		"an answer, the daemon away for too long":                  func(w *httpWalk) { w.loseComplete(); w.config.Lease = shortLease },
		"the end of its process":                                   httpProcessEnds,

		"not started: Validate refuses": func(w *httpWalk) {
			w.config.Validate = func(*http.Request) error { return errors.New("malformed") }
		},
		"not started: there is no key":         func(w *httpWalk) { w.key = "" },
		"not started: the body is too large":   func(w *httpWalk) { w.config.MaxBodyBytes = int64(len(w.sent)) - 1 },
		"not started: the daemon is away":      func(w *httpWalk) { w.options.Patience = time.Millisecond; w.proxy.Break(fault.LoseRequest) },
		"not started: too little time is left": httpWithoutTime,
	}
}

func panicsHTTP(http.ResponseWriter, *http.Request) { panic("in the middle") }

func recovers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				http.Error(w, "recovered", http.StatusInternalServerError)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func flushes(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }

func hijacks(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 11\r\nConnection: close\r\n\r\nso it ended")
	_ = rw.Flush()
}

func hints(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) }

func announcesLess(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "3") }

func announces(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "100") }

func writesOn(w *httpWalk) {
	returned, wrote := make(chan struct{}), make(chan struct{})
	w.answers(http.StatusOK, func(rw http.ResponseWriter, _ *http.Request) {
		go func() {
			defer close(wrote)
			<-returned
			if n, err := io.WriteString(rw, "too late"); err == nil || n > 0 {
				w.Errorf("wrote %d bytes", n)
			}
		}()
	})
	w.heal = func() { close(returned); <-wrote }
}

// leaves lets the caller hang up, and waits until the handler sees it.
func (w *httpWalk) leaves() http.HandlerFunc {
	ctx, hangUp := context.WithCancel(w.ctx)
	w.ctx = ctx
	return func(_ http.ResponseWriter, r *http.Request) {
		hangUp()
		<-r.Context().Done()
	}
}

func httpLeaseLost(w *httpWalk) {
	w.config.Lease = shortLease
	w.proxy.Break(fault.On(extendMethod, fault.LoseRequest))
	w.answers(http.StatusOK, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if cause := context.Cause(r.Context()); !errors.Is(cause, idem.ErrLeaseLost) {
			w.Errorf("the context ended with %v", cause)
		}
	})
}

// httpProcessEnds: what the daemon and the caller see of a process that ends.
func httpProcessEnds(w *httpWalk) {
	w.config.Lease = shortLease
	ended, over := make(chan struct{}), make(chan struct{})
	w.Cleanup(func() { close(over) })
	w.end = func(http.ResponseWriter, *http.Request) {
		w.proxy.Break(fault.LoseRequest)
		close(ended)
		<-over
	}
	w.before = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			go h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			<-ended
			panic(http.ErrAbortHandler)
		})
	}
	w.heal = func() { w.before = same } // the retry reaches another process
}

func httpWithoutTime(w *httpWalk) {
	w.config.MinRemaining = time.Hour
	w.before = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 30*time.Minute)
			defer cancel()
			h.ServeHTTP(rw, r.WithContext(ctx))
		})
	}
}

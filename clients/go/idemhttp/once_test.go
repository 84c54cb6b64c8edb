package idemhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// ways are those in which a handler can end. hangUp is its caller's.
func ways(t *testing.T) map[string]func(w http.ResponseWriter, r *http.Request, hangUp func()) {
	flush := func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
	}
	late := func(w http.ResponseWriter, size int) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	}
	hijack := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}
	return map[string]func(http.ResponseWriter, *http.Request, func()){
		"nothing":            func(http.ResponseWriter, *http.Request, func()) {},
		"flush":              func(w http.ResponseWriter, _ *http.Request, _ func()) { flush(w); flush(w) },
		"flush of nothing":   func(w http.ResponseWriter, _ *http.Request, _ func()) { w.(http.Flusher).Flush() },
		"hijack":             func(w http.ResponseWriter, _ *http.Request, _ func()) { hijack(w) },
		"flush, then hijack": func(w http.ResponseWriter, _ *http.Request, _ func()) { flush(w); hijack(w) },
		"panic":              func(http.ResponseWriter, *http.Request, func()) { panic("in the middle") },
		"ErrAbortHandler":    func(http.ResponseWriter, *http.Request, func()) { panic(http.ErrAbortHandler) },
		"flush, then panic":  func(w http.ResponseWriter, _ *http.Request, _ func()) { flush(w); panic("in the middle") },
		"hijack, then panic": func(w http.ResponseWriter, _ *http.Request, _ func()) { hijack(w); panic("in the middle") },
		"invalid status":     func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(99) },
		"over the limit": func(w http.ResponseWriter, _ *http.Request, _ func()) {
			_, _ = w.Write(make([]byte, idem.MaxBodyBytes+1))
		},
		"write deadline":       func(w http.ResponseWriter, _ *http.Request, _ func()) { late(w, 1) },
		"write deadline, long": func(w http.ResponseWriter, _ *http.Request, _ func()) { late(w, 9*idem.MaxBodyBytes) },
		"shorter than announced": func(w http.ResponseWriter, _ *http.Request, _ func()) {
			w.Header().Set("Content-Length", "100")
			flush(w)
		},
		"an informational one": func(w http.ResponseWriter, _ *http.Request, _ func()) { w.WriteHeader(http.StatusEarlyHints) },
		"WriteHeader twice": func(w http.ResponseWriter, _ *http.Request, _ func()) {
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusOK)
		},
		"declared twice": func(_ http.ResponseWriter, r *http.Request, _ func()) { idemhttp.NotExecuted(r); idemhttp.Final(r) },
		"client gone, an answer": func(w http.ResponseWriter, r *http.Request, hangUp func()) {
			hangUp()
			<-r.Context().Done()
			receipt(w, r)
		},
		"client gone, flushed": func(w http.ResponseWriter, r *http.Request, hangUp func()) {
			flush(w)
			hangUp()
			<-r.Context().Done()
			_, _ = w.Write(make([]byte, 9*idem.MaxBodyBytes))
		},
		"client gone, no answer": func(_ http.ResponseWriter, r *http.Request, hangUp func()) { hangUp(); <-r.Context().Done() },
	}
}

func TestEachEndingOfAHandlerIsToldInOneCompleteOrFail(t *testing.T) {
	all := ways(t)
	for _, code := range []int{200, 204, 304, 404, 409, 429, 499, 500, 503, 999} {
		all[fmt.Sprint(code)] = func(w http.ResponseWriter, r *http.Request, _ func()) { answering(code, "so it ended")(w, r) }
	}
	for name, way := range all {
		for _, mode := range []idem.Mode{idem.External, idem.Transactional} {
			t.Run(fmt.Sprint(name, mode), func(t *testing.T) {
				s := newShop(t, idemhttp.Config{Mode: mode}, idem.Options{})
				told, ended := s.CountOutcomes(), make(chan struct{})
				guarded := s.guard.Middleware(s)
				s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer close(ended)
					guarded.ServeHTTP(w, r)
				}))
				ctx, hangUp := context.WithCancel(guardtest.Bounded(t))
				defer hangUp()
				s.handle = func(w http.ResponseWriter, r *http.Request) { way(w, r, hangUp) }
				_ = s.send(t, s.request(t, "POST", "/orders", `{"n":1}`, "k").WithContext(ctx))
				<-ended
				s.MustHaveTold(t, told, 1)
				if is := s.Daemon.Record("acme", "", "k"); is.GetState() == processing {
					t.Errorf("stored is %v", is)
				}
			})
		}
	}
}

package daemon

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/reservation"
)

// httpOptions are what the HTTP server is made of.
type httpOptions struct {
	registry *prometheus.Registry
	ready    func() bool
	// identify tells who asks; nil = nobody is asked.
	identify func(access.Credentials) (*access.Identity, *reservation.Error)
	pprof    bool
	tls      *tls.Config // nil = in the clear
}

// newHTTP serves metrics and probes: /livez answers while the process runs, /readyz
// while it can take calls. Probes are open; the rest needs an identity with the role.
func newHTTP(o httpOptions) *http.Server {
	mux := http.NewServeMux()
	guard := func(roles access.Roles, handler http.Handler) http.Handler {
		return guarded(o.identify, roles, handler)
	}
	mux.Handle("GET /metrics", guard(access.Metrics|access.Operator, metricsPage(o.registry)))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !o.ready() {
			http.Error(w, "not ready: the store can't answer, or the daemon is draining", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		TLSConfig: o.tls,
	}
	if o.pprof {
		// Not the command line: it may hold a password.
		server.WriteTimeout = 2 * time.Minute // a profile takes as long as was asked for
		mux.Handle("GET /debug/pprof/", guard(access.Operator, http.HandlerFunc(pprof.Index)))
		mux.Handle("GET /debug/pprof/profile", guard(access.Operator, http.HandlerFunc(pprof.Profile)))
		mux.Handle("GET /debug/pprof/trace", guard(access.Operator, http.HandlerFunc(pprof.Trace)))
	}
	return server
}

// guarded asks who calls, and demands one of some roles.
func guarded(identify func(access.Credentials) (*access.Identity, *reservation.Error), roles access.Roles, handler http.Handler) http.Handler {
	if identify == nil {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials := access.Credentials{Authorization: r.Header.Values("Authorization")}
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			credentials.Certificate = r.TLS.VerifiedChains[0][0]
		}
		identity, refusal := identify(credentials)
		if refusal != nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, refusal.Error(), http.StatusUnauthorized)
			return
		}
		if refusal := identity.Require(roles); refusal != nil {
			http.Error(w, refusal.Error(), http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), readerKey{}, identity)))
	})
}

// readerKey is where a request's context has the identity that reads.
type readerKey struct{}

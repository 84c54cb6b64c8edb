package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Guard guards handlers. It may be used for any number of them, by many goroutines.
type Guard struct {
	client      *idem.Client
	config      Config
	operation   idem.Operation // what all requests have in common
	fingerprint *fingerprint.HTTP
	methods     []string
	headers     []string // canonical, the most important first
}

// New checks a configuration; the error says everything that is wrong with it. Building a
// guard has no side effects.
func New(client *idem.Client, c Config) (*Guard, error) {
	if c.Wait == 0 {
		c.Wait = DefaultWait
	}
	op := idem.Operation{
		Namespace: c.Namespace, Mode: c.Mode, Lease: c.Lease, Retention: c.Retention, Wait: c.Wait,
		MinRemaining: c.MinRemaining, Settle: c.Settle, PolicyVersion: c.PolicyVersion,
	}
	var wrong []error
	if err := guard.Check(c.Need, op); err != nil {
		wrong = append(wrong, fmt.Errorf("idemhttp: %w", err))
	}
	wrong = append(wrong, c.check())
	if client == nil {
		wrong = append(wrong, errors.New("idemhttp: there is no client"))
	}
	print, err := fingerprint.NewHTTP(c.Fingerprint)
	wrong = append(wrong, err)
	g := &Guard{client: client, config: c, operation: op, fingerprint: print, methods: c.Methods, headers: c.Headers}
	if g.methods == nil {
		g.methods = []string{http.MethodPost, http.MethodPatch}
	}
	if g.headers == nil {
		g.headers = DefaultHeaders()
	}
	g.methods, g.headers, g.config.StatusSecret = slices.Clone(g.methods), slices.Clone(g.headers), slices.Clone(c.StatusSecret)
	for i, name := range g.headers {
		g.headers[i] = textproto.CanonicalMIMEHeaderKey(name)
		wrong = append(wrong, checkHeader(g.headers[i]))
	}
	g.headers = distinct(append([]string{"Content-Encoding"}, g.headers...)) // without it the body can't be read
	if g.config.MaxBodyBytes == 0 {
		g.config.MaxBodyBytes = fingerprint.MaxBytes
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return g, nil
}

// Middleware guards one handler, or all behind a mux. Key, tenant and fingerprint are
// fixed before the handler runs; how it ended is recorded whatever becomes of the caller.
// Its answer is held back until that is done, unless it is flushed, hijacked or larger
// than idem.MaxBodyBytes.
//
// Put what identifies the caller (authentication) and what compresses before it, and it
// before whatever reads the body; recovery works on either side. It belongs behind the
// mux, where it knows the route and records no redirects of the mux's.
func (g *Guard) Middleware(next http.Handler) http.Handler {
	if next == nil {
		panic("idemhttp: Middleware without a handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.config.Need == Off || !slices.Contains(g.methods, r.Method) {
			handle(next, w, received(r))
			return
		}
		c := &call{Guard: g, next: next, w: w, r: r}
		c.serve()
	})
}

// distinct are the names without repetitions, in their order.
func distinct(names []string) (once []string) {
	for _, name := range names {
		if !slices.Contains(once, name) {
			once = append(once, name)
		}
	}
	return once
}

func (g *Guard) observe(r *http.Request, e Event) {
	if g.config.Observe != nil {
		g.config.Observe(r, e)
	}
}

package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

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
	headers     []string // canonical
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
	g.headers = append(g.headers, "Content-Encoding") // without it the body can't be read
	slices.Sort(g.headers)
	g.headers = slices.Compact(g.headers)
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
// Put what identifies the caller (authentication) and what compresses before it;
// recovery works on either side. The route counts where the guard stands behind the mux.
func (g *Guard) Middleware(next http.Handler) http.Handler {
	if next == nil {
		panic("idemhttp: Middleware without a handler")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.config.Need == Off || !slices.Contains(g.methods, r.Method) {
			next.ServeHTTP(w, withIncomingKey(r))
			return
		}
		c := &call{Guard: g, next: next, w: w, r: r}
		c.serve()
	})
}

func (g *Guard) observe(r *http.Request, e Event) {
	if g.config.Observe != nil {
		g.config.Observe(r, e)
	}
}

// check looks at what is HTTP's own.
func (c *Config) check() error {
	var wrong []error
	refuse := func(is bool, format string, values ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf("idemhttp: "+format, values...))
		}
	}
	refuse(c.Profile < ProfileDefault || c.Profile > ProfileIETF, "there is no profile %d", c.Profile)
	refuse(c.Methods != nil && len(c.Methods) == 0, "no methods are guarded: nil is POST and PATCH")
	for _, m := range c.Methods {
		refuse(m == "" || !isToken(m) || m != strings.ToUpper(m) || m == http.MethodConnect, "%q is no method to guard", m)
	}
	refuse(c.MaxBodyBytes < 0 || c.MaxBodyBytes > fingerprint.MaxBytes, "the largest body is %d bytes; 1 to %d, or 0 for that", c.MaxBodyBytes, fingerprint.MaxBytes)
	refuse(c.StatusPath != "" && !(strings.HasPrefix(c.StatusPath, "/") && strings.HasSuffix(c.StatusPath, "/")), "the status path %q needs a slash at either end", c.StatusPath)
	refuse(len(c.StatusSecret) > 0 && len(c.StatusSecret) < 16, "the status secret is shorter than 16 bytes")
	refuse(c.StatusPath != "" && c.Subject != nil && len(c.StatusSecret) == 0, "a status path needs a status secret where there are subjects: else one could read another's")
	return errors.Join(wrong...)
}

// checkHeader refuses names that are none, those that frame an answer or belong to its
// connection, and those that this package writes.
func checkHeader(name string) error {
	switch name {
	case KeyHeader, ReplayedHeader, ExpiresHeader, ReasonHeader, "Content-Type", "Content-Length", "Transfer-Encoding", "Connection",
		"Keep-Alive", "Upgrade", "Trailer", "Te", "Date", "Proxy-Authenticate", "Proxy-Connection":
		return fmt.Errorf("idemhttp: %s can't be a header to replay", name)
	}
	if name == "" || !isToken(name) {
		return fmt.Errorf("idemhttp: %q is no header", name)
	}
	return nil
}

// isToken: of RFC 9110's characters for names.
func isToken(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// withIncomingKey remembers the key that a request came with, for the calls that are made
// in its handler: it belongs to no other one.
func withIncomingKey(r *http.Request) *http.Request {
	if values := r.Header.Values(KeyHeader); len(values) > 0 {
		return r.WithContext(guard.WithIncoming(r.Context(), values...))
	}
	return r
}

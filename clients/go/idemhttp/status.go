package idemhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// StatusHandler answers GET and HEAD below Config.StatusPath, where the Location of a 202
// points to: what a repetition of the request would be answered, without executing
// anything. Tenant and Subject are asked about the caller as for the request itself; what
// is another's, or of the key's another life, is 404. Without a StatusPath all is 404.
func (g *Guard) StatusHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		g.status(w, r)
	})
}

func (g *Guard) status(w http.ResponseWriter, r *http.Request) {
	nothing := problem{status: http.StatusNotFound, reason: ReasonNoSuchRequest}
	key, known := g.keyAt(r.URL.Path)
	if !known {
		write(w, nothing)
		return
	}
	tenant, err := g.tenantOf(r)
	subject := ""
	if err == nil {
		subject, err = g.subjectOf(r)
	}
	if err != nil {
		write(w, refusedBy(err, http.StatusForbidden, ""))
		return
	}
	op := idem.Operation{Namespace: g.config.Namespace, Tenant: tenant, Key: key}
	at := g.client.Address(op)
	found, err := g.client.Lookup(r.Context(), &idemdv1.LookupRequest{Tenant: at.Tenant, Namespace: at.Namespace, Key: at.Key})
	switch is := found.GetReservation(); {
	case errors.Is(err, idem.ReservationNotFound):
		write(w, nothing)
	case err != nil:
		write(w, g.refusalOf(w, "", err))
	default:
		op.Fingerprint = idem.Fingerprint{Scheme: is.GetFingerprint().GetScheme(), Digest: is.GetFingerprint().GetDigest()}
		url := g.statusURL(op, subject)
		if !hmac.Equal([]byte(lastSegment(url)), []byte(lastSegment(r.URL.Path))) {
			write(w, nothing)
			return
		}
		g.show(w, url, is)
	}
}

// tenantOf is who the key belongs to; empty: it is the client's.
func (g *Guard) tenantOf(r *http.Request) (string, error) {
	if g.config.Tenant == nil {
		return "", nil
	}
	tenant, err := g.config.Tenant(r)
	if err == nil && tenant == "" {
		err = errNoTenant
	}
	return tenant, err
}

// errNoTenant: else the caller would share keys with all of the client's.
var errNoTenant = errors.New("idemhttp: Config.Tenant names no tenant")

// subjectOf is on whose behalf the request runs; empty: nobody's.
func (g *Guard) subjectOf(r *http.Request) (string, error) {
	if g.config.Subject == nil {
		return "", nil
	}
	return g.config.Subject(r)
}

// show answers as a repetition would be, of what can't be executed. Nobody may cache it,
// whatever the answer says of itself.
func (g *Guard) show(w http.ResponseWriter, at string, is *idemdv1.Reservation) {
	answer := &idem.Answer{Result: is.GetResult()}
	if is.GetExpiresAt() != nil {
		answer.ExpiresAt = is.GetExpiresAt().AsTime()
	}
	switch is.GetState() {
	case idemdv1.State_STATE_SUCCEEDED, idemdv1.State_STATE_FAILED_FINAL:
		g.replay(uncached{w}, answer, is.GetState() == idemdv1.State_STATE_FAILED_FINAL)
	case idemdv1.State_STATE_FAILED_RETRYABLE:
		write(w, problem{status: http.StatusConflict, reason: ReasonNotExecuted})
	case idemdv1.State_STATE_UNKNOWN:
		write(w, problem{status: http.StatusConflict, reason: ReasonOutcomeUnknown})
	default:
		write(w, g.inProgress(w, at, time.Second))
	}
}

// uncached says that nobody may cache the answer.
type uncached struct{ http.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w uncached) WriteHeader(status int) {
	w.Header().Set("Cache-Control", "no-store")
	w.ResponseWriter.WriteHeader(status)
}

// statusURL is where the state of an operation is shown to its tenant and subject; empty:
// nowhere. What is signed is this life of the key: with another fingerprint it is another.
func (g *Guard) statusURL(op idem.Operation, subject string) string {
	if g.config.StatusPath == "" {
		return ""
	}
	url := g.config.StatusPath + base64.RawURLEncoding.EncodeToString([]byte(op.Key))
	if len(g.config.StatusSecret) == 0 {
		return url
	}
	at := g.client.Address(op)
	mac := hmac.New(sha256.New, g.config.StatusSecret)
	for _, part := range []string{"idemhttp-status-v2", at.Tenant, at.Namespace, at.Key, subject, op.Fingerprint.Scheme, string(op.Fingerprint.Digest)} {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = mac.Write([]byte(part))
	}
	return url + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// keyAt reads the key in the path of a status resource, if there are any.
func (g *Guard) keyAt(path string) (string, bool) {
	encoded, _, _ := strings.Cut(lastSegment(path), ".")
	key, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(key), g.config.StatusPath != "" && err == nil && guard.CheckHeaderKey(string(key)) == nil
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

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
// is another's is 404.
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
	key, known := g.keyAt(r.URL.Path)
	if !known {
		write(w, problem{status: http.StatusNotFound, reason: ReasonNoSuchRequest})
		return
	}
	op := idem.Operation{Namespace: g.config.Namespace, Key: key}
	var err error
	if g.config.Tenant != nil {
		if op.Tenant, err = g.config.Tenant(r); err != nil {
			write(w, refusedBy(err, http.StatusForbidden, ""))
			return
		}
	}
	url, err := g.statusURL(r, op)
	if err != nil {
		write(w, refusedBy(err, http.StatusForbidden, ""))
		return
	}
	if !hmac.Equal([]byte(lastSegment(url)), []byte(lastSegment(r.URL.Path))) {
		write(w, problem{status: http.StatusNotFound, reason: ReasonNoSuchRequest})
		return
	}
	at := g.client.Address(op)
	found, err := g.client.Lookup(r.Context(), &idemdv1.LookupRequest{Tenant: at.Tenant, Namespace: at.Namespace, Key: at.Key})
	if errors.Is(err, idem.ReservationNotFound) {
		write(w, problem{status: http.StatusNotFound, reason: ReasonNoSuchRequest})
		return
	}
	if err != nil {
		write(w, g.refusalOf(w, r, op, err))
		return
	}
	g.show(w, r, op, found.GetReservation())
}

// show answers as a repetition would be, of what can't be executed.
func (g *Guard) show(w http.ResponseWriter, r *http.Request, op idem.Operation, is *idemdv1.Reservation) {
	answer := &idem.Answer{Result: is.GetResult()}
	if is.GetExpiresAt() != nil {
		answer.ExpiresAt = is.GetExpiresAt().AsTime()
	}
	switch is.GetState() {
	case idemdv1.State_STATE_SUCCEEDED, idemdv1.State_STATE_FAILED_FINAL:
		w.Header().Set("Cache-Control", "no-store")
		g.replay(w, answer, is.GetState() == idemdv1.State_STATE_FAILED_FINAL)
	case idemdv1.State_STATE_FAILED_RETRYABLE:
		write(w, problem{status: http.StatusConflict, reason: ReasonNotExecuted})
	case idemdv1.State_STATE_UNKNOWN:
		write(w, problem{status: http.StatusConflict, reason: ReasonOutcomeUnknown})
	default:
		write(w, g.inProgress(w, r, op, time.Second))
	}
}

// statusURL is where the state of an operation is shown to its tenant and subject.
func (g *Guard) statusURL(r *http.Request, op idem.Operation) (string, error) {
	url := g.config.StatusPath + base64.RawURLEncoding.EncodeToString([]byte(op.Key))
	if len(g.config.StatusSecret) == 0 {
		return url, nil
	}
	subject := ""
	if g.config.Subject != nil {
		var err error
		if subject, err = g.config.Subject(r); err != nil {
			return "", err
		}
	}
	at := g.client.Address(op)
	mac := hmac.New(sha256.New, g.config.StatusSecret)
	for _, part := range []string{"idemhttp-status-v1", at.Tenant, at.Namespace, at.Key, subject} {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		_, _ = mac.Write([]byte(part))
	}
	return url + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)), nil
}

// keyAt reads the key in the path of a status resource.
func (g *Guard) keyAt(path string) (string, bool) {
	encoded, _, _ := strings.Cut(lastSegment(path), ".")
	key, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(key), err == nil && guard.CheckHeaderKey(string(key)) == nil
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

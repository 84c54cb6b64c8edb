package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// Bounds of a Transport's repetitions.
const (
	// DefaultAttempts is how often a request is sent at most.
	DefaultAttempts = 4
	// DefaultMaxPause is the longest pause before it is sent again.
	DefaultMaxPause = 30 * time.Second

	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
	// maxDrained and drainTime bound what is read of an answer that is not given to the
	// caller.
	maxDrained = 64 << 10
	drainTime  = time.Second
)

// Transport is a RoundTripper that gives each request of the chosen methods a key, unless
// it has one, and sends it again with the same key while there is no definite answer: the
// connection failed, or the answer says that it is under way, was not executed, or that
// the server is busy. The body is sent again by Request.GetBody; a request with a body
// and without that is sent once. The zero value is ready for use; it may be used by many
// goroutines, and must not be changed then.
//
// One call of RoundTrip has one key. Who repeats around it, or in another process, makes
// the key where the operation begins, stores it, and passes it by [WithKey]. An error
// that leaves the outcome open is a *[KeptKeyError], which has the key; an answer's is in
// its Request. [KeepKey] says what to do with it.
//
// A key that came in with a request or a gRPC call, in whose context the new one is made,
// and was copied to it is taken out, whatever the method: it names another operation.
// Requests are known behind a [Guard], guarded or not; gRPC calls always.
type Transport struct {
	// Base sends. Nil = http.DefaultTransport.
	Base http.RoundTripper
	// Methods are those that get a key. Nil = POST and PATCH.
	Methods []string
	// Attempts is how often a request is sent at most. Zero = DefaultAttempts.
	Attempts int
	// MaxPause: an answer that says to come back later than this is given to the caller.
	// Zero = DefaultMaxPause. So is one whose time is beyond the context's deadline.
	MaxPause time.Duration
}

// KeptKeyError is how a request ended that may have been executed: repeat it with this
// key, and no other.
type KeptKeyError struct {
	Key string
	Err error
}

// Error implements error.
func (e *KeptKeyError) Error() string {
	return fmt.Sprintf("%v (it may have been executed: repeat it with the same Idempotency-Key)", e.Err)
}

// Unwrap implements errors.Is.
func (e *KeptKeyError) Unwrap() error { return e.Err }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, methods := t.Base, t.Methods
	if base == nil {
		base = http.DefaultTransport
	}
	if methods == nil {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	keyed := withOwnKey(r, slices.Contains(methods, r.Method))
	key := keyed.Header.Get(KeyHeader)
	send := base.RoundTrip
	if key != "" {
		send = func(r *http.Request) (*http.Response, error) { return t.persist(base, r) }
	} else {
		key = keyBefore(r)
	}
	response, err := send(keyed)
	if err != nil && key != "" {
		return nil, &KeptKeyError{Key: key, Err: err}
	}
	return response, err
}

// keyBefore is that of the request which was redirected to this one; empty: there is none.
func keyBefore(r *http.Request) string {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
		if key := r.Header.Get(KeyHeader); key != "" {
			return key
		}
	}
	return ""
}

// persist sends a request until there is an answer that the caller must see.
func (t *Transport) persist(base http.RoundTripper, r *http.Request) (*http.Response, error) {
	attempts := t.Attempts
	if attempts <= 0 {
		attempts = DefaultAttempts
	}
	rewindable := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	for attempt, pause := 1, firstPause; ; attempt, pause = attempt+1, min(2*pause, lastPause) {
		response, err := base.RoundTrip(r)
		if attempt >= attempts || !rewindable || !again(response, err) || r.Context().Err() != nil {
			return response, err
		}
		pause := max(pause+rand.N(pause/4+1), retryAfter(response)) // never earlier than asked for
		if !t.fits(r.Context(), pause) {
			return response, err
		}
		if response != nil {
			drain(response.Body)
		}
		if !sleep(r.Context(), pause) {
			return nil, errors.Join(r.Context().Err(), err)
		}
		var bodyErr error
		if r, bodyErr = rewound(r); bodyErr != nil {
			return nil, errors.Join(bodyErr, err)
		}
	}
}

// drain reads what is left of an answer, so that its connection can be used again: not
// for long, and nobody waits for it.
func drain(body io.ReadCloser) {
	cut := time.AfterFunc(drainTime, func() { _ = body.Close() })
	go func() {
		defer cut.Stop()
		_, _ = io.CopyN(io.Discard, body, maxDrained)
		_ = body.Close()
	}()
}

// fits: it is not too long, and ends before the context does.
func (t *Transport) fits(ctx context.Context, pause time.Duration) bool {
	most := t.MaxPause
	if most <= 0 {
		most = DefaultMaxPause
	}
	deadline, has := ctx.Deadline()
	return pause <= most && !(has && time.Until(deadline) <= pause)
}

// again: the answer is none, or not the last one.
func again(response *http.Response, err error) bool {
	if err != nil {
		return true
	}
	switch Reason(response.Header.Get(ReasonHeader)) {
	case ReasonInProgress, ReasonNotStarted, ReasonGuardUnavailable:
		return true
	case ReasonNotExecuted: // and the same request can fare better
		return response.StatusCode >= 500 || response.StatusCode == http.StatusTooEarly || response.StatusCode == http.StatusTooManyRequests
	case "":
	default:
		return false
	}
	switch response.StatusCode {
	case http.StatusTooEarly, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict: // what others than a Guard say of a request under way
		return response.Header.Get("Retry-After") != ""
	}
	return false
}

// retryAfter is what the answer asks for; 0 = nothing.
func retryAfter(response *http.Response) time.Duration {
	if response == nil {
		return 0
	}
	said := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseInt(said, 10, 32); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(said); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// rewound is the same request with its body from the start.
func rewound(r *http.Request) (*http.Request, error) {
	next := r.Clone(r.Context())
	if r.GetBody == nil {
		return next, nil
	}
	var err error
	next.Body, err = r.GetBody()
	return next, err
}

// sleep is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type keyKey struct{}

// WithKey gives the next request, and its repetitions, this key. Use it for one logical
// request: two that share a context made by it share the key. A header that the request
// has goes before it, unless it is that of the incoming request.
//
// A redirect that keeps the method (307, 308) is the same request elsewhere, with the same
// key; one that is followed with GET has none.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyKey{}, key)
}

// WithDerivedKey gives the next request a key that is derived from the guarded one in
// whose handler it is made: the same on every attempt. One label names one downstream
// request. In a handler that runs unguarded it changes nothing, and the transport makes a
// new key.
func WithDerivedKey(ctx context.Context, label string) context.Context {
	g, is := idem.GrantFrom(ctx)
	if !is {
		return ctx
	}
	return WithKey(ctx, g.DeriveKey(label))
}

// withOwnKey is the request, or a copy of it, with a key of its own, if it gets one.
func withOwnKey(r *http.Request, chosen bool) *http.Request {
	ctx := r.Context()
	wanted, has := ctx.Value(keyKey{}).(string)
	sent := r.Header.Values(KeyHeader)
	own := guard.WithoutIncoming(ctx, sent)
	switch {
	case len(own) > 0:
	case r.Response != nil && !chosen: // a redirect that is followed with GET
	case r.Response != nil && keyBefore(r) != "":
		own = []string{keyBefore(r)}
	case has && wanted != "":
		own = []string{wanted}
	case chosen:
		own = []string{idem.NewKey()}
	}
	if slices.Equal(own, sent) {
		return r
	}
	copied := r.Clone(ctx)
	if copied.Header == nil {
		copied.Header = http.Header{}
	}
	copied.Header.Del(KeyHeader)
	for _, key := range own {
		copied.Header.Add(KeyHeader, key)
	}
	return copied
}

// ReasonOf reads, on the client's side, what a guard said; empty: nothing.
func ReasonOf(response *http.Response) Reason { return Reason(response.Header.Get(ReasonHeader)) }

// KeepKey says, on the client's side, whether a repetition of a request that ended so
// must carry the same key. It is false after an answer that is the last one: done, or
// recorded by a [Guard] (which says until when), or for a key that is no good. In all
// doubt it is true: a refusal that no guard has recorded may be of something before it,
// and an earlier try may have been executed.
func KeepKey(response *http.Response, err error) bool {
	if err != nil || response == nil {
		return true
	}
	if reason := ReasonOf(response); reason != "" {
		return guard.KeepKey(reason)
	}
	if response.Header.Get(ExpiresHeader)+response.Trailer.Get(ExpiresHeader)+response.Header.Get(ReplayedHeader) != "" {
		return false
	}
	switch status := response.StatusCode; status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect: // it is to be sent elsewhere
		return true
	default:
		return status < 200 || status >= 400
	}
}

package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// call is one guarded request.
type call struct {
	*Guard
	next http.Handler
	w    http.ResponseWriter
	r    *http.Request

	body    []byte
	subject string
	op      idem.Operation
	rec     *recorder // of the handler that has run; nil = none has
	reduced error     // what of its answer is not kept
	// gaveUp: it has written nothing, after its context had ended.
	gaveUp bool
	// reconciled: Config.Reconcile has found out how an earlier attempt had ended.
	reconciled bool
}

func (c *call) serve() {
	key, err := guard.Key(KeyHeader, c.r.Header.Values(KeyHeader))
	switch {
	case err != nil:
		c.refuse(problem{status: http.StatusBadRequest, reason: ReasonKeyInvalid, detail: err.Error()}, err)
		return
	case key == "" && c.config.Need == Required:
		c.refuse(problem{status: http.StatusBadRequest, reason: ReasonKeyRequired,
			detail: "This request needs the header " + KeyHeader + ": one key for one operation, the same on every retry."}, nil)
		return
	}
	if key == "" && c.config.Validate == nil { // nobody has to know its body
		c.unguarded(received(c.r), nil)
		return
	}
	read, refused, err := c.read()
	if refused != nil {
		c.refuse(*refused, err)
		return
	}
	if key != "" && isGone(c.r, c.body) {
		c.refuse(problem{status: http.StatusServiceUnavailable, reason: ReasonGuardRefused}, errBodyGone)
		return
	}
	if c.config.Validate != nil {
		if err := c.asked(c.r.Context(), c.config.Validate); err != nil {
			c.refuse(refusedBy(err, http.StatusBadRequest, err.Error()), err)
			return
		}
	}
	if key == "" {
		c.unguarded(c.request(c.r.Context()), nil)
		return
	}
	if refused, err := c.meaning(key, read); refused != nil {
		c.refuse(*refused, err)
		return
	}
	answer, err := c.client.Do(c.r.Context(), c.op, c.run)
	c.answer(answer, err)
}

// unguarded runs the handler without a guard; why is empty where there is no key.
func (c *call) unguarded(r *http.Request, why error) {
	c.observe(c.r, Event{Ending: Unguarded, Err: why})
	handle(c.next, c.w, r.WithContext(idem.WithGrant(r.Context(), nil)))
}

// read takes what the request is before anything can change it.
func (c *call) read() (fingerprint.Request, *problem, error) {
	tooLarge := func(limit int64) *problem {
		return &problem{status: http.StatusRequestEntityTooLarge, reason: ReasonRequestTooLarge, detail: fmt.Sprintf("The body may be %d bytes.", limit)}
	}
	if c.r.ContentLength > c.config.MaxBodyBytes {
		return fingerprint.Request{}, tooLarge(c.config.MaxBodyBytes), nil
	}
	r := received(c.r)
	if r == c.r {
		r = r.WithContext(r.Context()) // a copy
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(c.w, r.Body, c.config.MaxBodyBytes)
	}
	read, err := fingerprint.ReadRequest(r)
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over): // by this limit, or one before the guard
		return read, tooLarge(over.Limit), err
	case err != nil:
		return read, &problem{status: http.StatusBadRequest, reason: ReasonRequestRefused, detail: "The body could not be read."}, err
	}
	r.Trailer = c.r.Trailer // those that were not announced came with the body's end
	c.r, c.body = r, read.Body
	return read, nil, nil
}

// request is the caller's, with its whole body.
func (c *call) request(ctx context.Context) *http.Request {
	r := c.r.WithContext(ctx)
	if r.Body != nil {
		b := &body{}
		b.Reset(c.body)
		r.Body = b
	}
	return r
}

// asked asks one of Config's functions about the request.
func (c *call) asked(ctx context.Context, about func(*http.Request) error) error {
	r := c.request(ctx)
	defer removeFiles(r, r.MultipartForm)
	return about(r)
}

// meaning is what the request means. Where there is a problem it is the answer.
func (c *call) meaning(key string, read fingerprint.Request) (*problem, error) {
	tenant, err := c.who()
	if err != nil {
		p := refusedBy(err, http.StatusForbidden, "")
		return &p, err
	}
	print, err := c.fingerprint.Sum(c.subject, read)
	if err != nil {
		return &problem{status: http.StatusBadRequest, reason: ReasonRequestRefused, detail: err.Error()}, err
	}
	c.op = c.Guard.operation
	c.op.Tenant, c.op.Key, c.op.Fingerprint = tenant, key, print
	if c.config.KeyHasTime {
		c.op.FirstAttemptAt, _ = idem.KeyTime(key)
	}
	if c.config.Reconcile != nil {
		c.op.Reconcile = func(ctx context.Context, u *idem.Unresolved) (verdict idem.Verdict, err error) {
			err = c.asked(ctx, func(r *http.Request) error {
				verdict, err = c.config.Reconcile(ctx, r, u)
				return err
			})
			c.reconciled = err == nil && verdict != idem.Verdict{}
			return verdict, err
		}
	}
	return nil, nil
}

// who asks for the tenant, and for the subject.
func (c *call) who() (tenant string, err error) {
	if c.config.Tenant == nil && c.config.Subject == nil {
		return "", nil
	}
	err = c.asked(c.r.Context(), func(r *http.Request) (err error) {
		if tenant, err = c.tenantOf(r); err == nil {
			c.subject, err = c.subjectOf(r)
		}
		return err
	})
	return tenant, err
}

// run runs the handler as an attempt that was granted, and tells what its ending means.
func (c *call) run(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
	declared := &declaration{}
	rec := newRecorder(c.w, c.r)
	defer rec.end() // also when it panics: what is left of it writes to nobody
	handle(c.next, rec, c.request(context.WithValue(ctx, declarationKey{}, declared)))
	rec.end()
	c.rec = rec
	outcome := Outcome(declared.Load())
	switch {
	case rec.hijacked:
		if outcome == OutcomeUndeclared {
			outcome = OutcomeUnknown // nobody knows what was said
		}
		return &idem.Result{BodyOmitted: true}, errorFor(outcome)
	case rec.status == 0 && ctx.Err() != nil && outcome == OutcomeUndeclared:
		c.gaveUp = true
		return nil, errors.New("the handler ended without an answer, after its context had")
	case rec.status == 0:
		rec.writeHeader(http.StatusOK) // as net/http does
	}
	if outcome == OutcomeUndeclared && c.config.Outcome != nil {
		outcome = c.config.Outcome(c.r, rec.status)
	}
	if outcome == OutcomeUndeclared && !rec.another { // else the status says how that one ended
		outcome = DefaultOutcome(rec.status)
	}
	result, reduced := rec.result(c.headers)
	c.reduced = reduced
	return result, errorFor(outcome)
}

// answer is what the caller is told once Do has ended.
func (c *call) answer(answer *idem.Answer, err error) {
	if c.rec != nil {
		c.own(answer, err)
		return
	}
	final, refused := err.(*idem.FinalError) //nolint:errorlint // Do's own error: what it wraps may be another Do's
	switch {
	case err == nil:
		c.observe(c.r, Event{Ending: Replayed, Reason: c.replay(c.w, answer, false), Reconciled: c.reconciled})
	case refused:
		c.observe(c.r, Event{Ending: Replayed, Reason: c.replay(c.w, &final.Answer, true), Reconciled: c.reconciled})
	case c.config.Open && guard.Unreachable(c.r.Context(), err):
		c.unguarded(c.request(c.r.Context()), err)
	default:
		c.refuse(c.refusalOf(c.w, c.statusURL(c.op, c.subject), err), err)
	}
}

// own is the answer of the handler that has run in this request, recorded or not.
func (c *call) own(answer *idem.Answer, err error) {
	reason, expires, unrecorded := guard.Recorded(answer, err)
	ending := Executed
	if unrecorded != nil {
		ending = Unrecorded
	}
	c.observe(c.r, Event{Ending: ending, Reason: reason, Err: unrecorded, Reduced: c.reduced, Reconciled: c.reconciled})
	switch {
	case c.gaveUp && reason == ReasonNotExecuted:
		write(c.w, problem{status: http.StatusServiceUnavailable, reason: reason, retry: guard.RetryPause})
	case c.gaveUp:
		write(c.w, problem{status: http.StatusConflict, reason: reason})
	default:
		add := http.Header{}
		announceExpiry(add, expires)
		if reason != "" { // the key is not over: say so
			add.Set(ReasonHeader, string(reason))
		}
		c.rec.deliver(add)
	}
}

// refuse tells the observer, and answers.
func (c *call) refuse(p problem, why error) {
	c.observe(c.r, Event{Ending: Refused, Reason: p.reason, Err: why})
	write(c.w, p)
}

// announceExpiry says until when an answer is replayed.
func announceExpiry(h http.Header, at time.Time) {
	if !at.IsZero() {
		h.Set(ExpiresHeader, at.UTC().Format(time.RFC3339Nano))
	}
}

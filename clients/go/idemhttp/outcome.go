package idemhttp

import (
	"net/http"
	"sync/atomic"

	"github.com/idemd/idemd/clients/go/idem"
)

// Outcome is what a handler's answer means for the key.
type Outcome int32

// OutcomeUndeclared says nothing itself: may have happened (External), rolled back
// (Transactional). Where Config.Outcome returns it, [DefaultOutcome] is asked.
const OutcomeUndeclared Outcome = 0

// OutcomeSucceeded is done. The same answer is replayed.
const OutcomeSucceeded Outcome = 1

// OutcomeFinal is a refusal for good. The same answer is replayed.
const OutcomeFinal Outcome = 2

// OutcomeNotExecuted is certainly not done. The next request runs the handler again.
const OutcomeNotExecuted Outcome = 3

// OutcomeUnknown may have happened. In External nobody repeats it.
const OutcomeUnknown Outcome = 4

// DefaultOutcome is the table for who has none of their own. 2xx and 3xx are done. 401,
// 412, 421, 425, 428 and 429 say themselves that the request was not applied, and that
// the same one may come again. Other 4xx are refusals for good, but 408 and 499: behind
// a guard, which has read the whole request, they tell of something that took too long.
// All else is undeclared.
func DefaultOutcome(status int) Outcome {
	switch status {
	case http.StatusUnauthorized, http.StatusPreconditionFailed, http.StatusMisdirectedRequest, http.StatusTooEarly,
		http.StatusPreconditionRequired, http.StatusTooManyRequests:
		return OutcomeNotExecuted
	case http.StatusRequestTimeout, 499:
		return OutcomeUndeclared
	}
	switch status / 100 {
	case 2, 3:
		return OutcomeSucceeded
	case 4:
		return OutcomeFinal
	}
	return OutcomeUndeclared
}

// declaration is an Outcome that a handler may still declare.
type declaration struct{ atomic.Int32 }

type declarationKey struct{}

// Succeeded declares, within a guarded handler, that the effect was done, whatever the
// status says. Of several declarations the last one counts. Where the handler runs
// unguarded it does nothing.
func Succeeded(r *http.Request) { declare(r, OutcomeSucceeded) }

// NotExecuted declares that the effect has certainly not happened: the next request runs
// the handler again. Otherwise as Succeeded.
func NotExecuted(r *http.Request) { declare(r, OutcomeNotExecuted) }

// Final declares that the effect was refused for good: the same answer is replayed.
// Otherwise as Succeeded.
func Final(r *http.Request) { declare(r, OutcomeFinal) }

// Unknown declares that the effect may have happened. Otherwise as Succeeded.
func Unknown(r *http.Request) { declare(r, OutcomeUnknown) }

func declare(r *http.Request, o Outcome) {
	if _, is := idem.GrantFrom(r.Context()); !is {
		return
	}
	if d, is := r.Context().Value(declarationKey{}).(*declaration); is {
		d.Store(int32(o))
	}
}

// errorFor is what an outcome is for idem.Do.
func errorFor(o Outcome) error {
	const err = answerError("the handler's answer says so")
	switch o {
	case OutcomeSucceeded:
		return nil
	case OutcomeFinal:
		return idem.Final(err)
	case OutcomeNotExecuted:
		return idem.NotExecuted(err)
	case OutcomeUnknown:
		return idem.Unknown(err)
	}
	return err
}

type answerError string

// Error implements error.
func (e answerError) Error() string { return string(e) }

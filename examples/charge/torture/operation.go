package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
)

// operation is one order, and all that happened to it.
type operation struct {
	index int
	order string
	plan  plan
	first time.Time

	mu       sync.Mutex
	events   []event
	stories  []*story
	receipts []string // as they were heard, without repetitions
	declined bool     // somebody heard so
	// unheard: a call ended without telling whether an attempt was granted.
	unheard bool
	end     end
}

// event is one line of the history.
type event struct {
	at   time.Duration
	who  string
	what string
}

// story is one attempt, as its owner saw it.
type story struct {
	attempt    int32
	fence      int64
	start, end time.Duration
	trouble    string // why its outcome may be unknown; "" = it is known
	unrecorded error  // why the daemon could not be told
}

// end is how everybody who asks is answered in the end.
type end struct {
	receipt    string
	declined   bool
	unresolved *idem.UnresolvedError
	err        error // there was no definite answer
}

func (o *operation) note(at time.Duration, who, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event{at, who, fmt.Sprintf(format, args...)})
}

func (o *operation) begin(at time.Duration, g *idem.Grant) *story {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &story{attempt: g.Attempt, fence: g.Fence, start: at}
	o.stories = append(o.stories, s)
	return s
}

// finish notes how the effect ended: undecided is why that is not known, or nil.
func (o *operation) finish(ctx context.Context, s *story, at time.Duration, undecided error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.end = at
	switch {
	case undecided == nil:
	case errors.Is(context.Cause(ctx), idem.ErrLeaseLost):
		s.trouble = leaseLost
	case ctx.Err() != nil:
		s.trouble = clientHungUp
	default:
		s.trouble = bankHungUp
	}
}

// hear notes what a call of Do has told.
func (o *operation) hear(answer *idem.Answer, err error) (what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var (
		final       *idem.FinalError
		notExecuted *idem.NotExecutedError
		unresolved  *idem.UnresolvedError
		inProgress  *idem.InProgressError
	)
	switch {
	case err == nil:
		o.hearReceipt(string(answer.Result.GetBody()))
		o.untold(answer.Attempt, answer.Unrecorded)
		if answer.Replayed {
			return heardReplay
		}
		return heardDone
	case errors.As(err, &final):
		if final.Unrecorded != nil { // then it is not for good: nobody else will hear it
			o.untold(final.Attempt, final.Unrecorded)
			return heardUnresolved
		}
		o.declined = true
		return heardDeclined
	case errors.As(err, &notExecuted):
		o.untold(notExecuted.Attempt, notExecuted.Unrecorded)
		return heardNotExecuted
	case errors.As(err, &unresolved):
		o.untold(unresolved.Attempt, unresolved.Unrecorded)
		return heardUnresolved
	case errors.As(err, &inProgress):
		return heardInProgress
	}
	o.unheard = true
	return heardNothing
}

func (o *operation) hearReceipt(receipt string) {
	for _, heard := range o.receipts {
		if heard == receipt {
			return
		}
	}
	o.receipts = append(o.receipts, receipt)
}

func (o *operation) untold(attempt int32, err error) {
	if s := o.story(attempt); s != nil && err != nil {
		s.unrecorded = err
	}
}

func (o *operation) story(attempt int32) *story {
	for _, s := range o.stories {
		if s.attempt == attempt {
			return s
		}
	}
	return nil
}

// history is for people.
func (o *operation) history() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	mode := "external"
	if o.plan.mode == idem.Transactional {
		mode = "transactional"
	}
	fmt.Fprintf(&b, "order %s (%s, reconcile %v, lease %v)\n", o.order, mode, o.plan.reconcile, o.plan.lease.Round(time.Millisecond))
	for _, e := range o.events {
		fmt.Fprintf(&b, "  %8.3f s  %-10s %s\n", e.at.Seconds(), e.who, e.what)
	}
	return b.String()
}

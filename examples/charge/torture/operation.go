package torture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/shop"
)

// operation is one order, and all that happened to it.
type operation struct {
	index int
	order string
	plan  plan
	first time.Time
	began time.Duration // the same, since the start of all

	mu       sync.Mutex
	events   []event
	stories  []*story
	receipts []string // as they were heard, without repetitions
	declined bool     // somebody heard so
	expired  bool     // somebody heard that it is too old to be known
	wrong    []string // what was heard that can't be
	traces   map[string]*trace
	end      end
}

// event is one line of the history.
type event struct {
	at   time.Duration
	who  string
	what string
}

// story is one attempt, as its owner saw it.
type story struct {
	attempt int32
	fence   int64
	began   time.Duration
	trouble string // why its outcome may be unknown; "" = it is known, or nobody planned that
}

// end is how everybody who asks is answered in the end.
type end struct {
	receipt    string
	declined   bool
	expired    bool
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
	s := &story{attempt: g.Attempt, fence: g.Fence, began: at}
	o.stories = append(o.stories, s)
	return s
}

// undecided notes why an attempt's outcome is not known.
func (o *operation) undecided(s *story, trouble string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.trouble = trouble
}

// hear notes what a call of Do has told.
func (o *operation) hear(at time.Duration, answer *idem.Answer, err error) (what string) {
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
		o.hearReceipt(answer.Result)
		if answer.Replayed {
			return heardReplay
		}
		return heardDone
	case errors.As(err, &final):
		if final.Unrecorded != nil { // then it is not for good: nobody else will hear it
			return heardUnresolved
		}
		o.declined = true
		o.mustBe(final.Result, shop.Declined())
		return heardDeclined
	case errors.As(err, &notExecuted):
		return heardNotExecuted
	case errors.As(err, &unresolved):
		return heardUnresolved
	case errors.As(err, &inProgress):
		return heardInProgress
	case errors.Is(err, idem.KeyMayHaveExpired):
		o.expired = true
		if least := o.began + o.plan.retention; at < least {
			o.wrong = append(o.wrong, fmt.Sprintf("somebody heard at %v that it may have expired, before %v", at, least))
		}
		return heardExpired
	}
	return heardNothing
}

// hearReceipt notes a receipt. Whatever else is in the result follows from it.
func (o *operation) hearReceipt(result *idem.Result) {
	o.mustBe(result, shop.Charged(result.GetBody()))
	if receipt := string(result.GetBody()); !slices.Contains(o.receipts, receipt) {
		o.receipts = append(o.receipts, receipt)
	}
}

// mustBe compares all of a result: status, headers, content type, body, decision id.
func (o *operation) mustBe(heard, want *idem.Result) {
	if !proto.Equal(heard, want) {
		o.wrong = append(o.wrong, fmt.Sprintf("somebody heard %v instead of %v", heard, want))
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
	fmt.Fprintf(&b, "order %s (%s, reconcile %v, lease %v, retention %v)\n", o.order, mode, o.plan.reconcile,
		o.plan.lease.Round(time.Millisecond), o.plan.retention.Round(time.Millisecond))
	events := slices.Clone(o.events)
	for _, t := range o.traces {
		for _, call := range t.calls {
			events = append(events, event{call.heard, t.owner, call.String()})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	for _, e := range events {
		fmt.Fprintf(&b, "  %8.3f s  %-10s %s\n", e.at.Seconds(), e.who, e.what)
	}
	return b.String()
}

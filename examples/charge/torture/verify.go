package torture

import (
	"fmt"
	"time"
)

// Why an outcome can be unknown.
const (
	clientDied   = "a client died inside the effect"
	clientHungUp = "a client hung up inside the effect"
	bankHungUp   = "the bank hung up inside the effect"
	leaseLost    = "the daemon was killed inside the effect, and the lease was lost"
	untold       = "the daemon was killed inside the effect, and its outcome could not be told"
	unheardGrant = "a client was gone when its Reserve was granted"
)

// verify tells which rules an operation breaks, and, if it is unresolved, why.
func (w *world) verify(o *operation) (violations []string, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	violate := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	ledger := w.ledger.Charges(o.order)
	if len(ledger) > 1 {
		violate("%d effects", len(ledger))
	}
	for _, receipt := range o.receipts {
		if len(ledger) == 0 {
			violate("somebody heard of a charge that the ledger does not have: %q", receipt)
		} else if want := ledger[0].String() + "\n"; receipt != want {
			violate("somebody heard %q, the ledger has %q", receipt, want)
		}
	}
	if o.declined && len(ledger) > 0 {
		violate("somebody heard that it was declined, and it was charged")
	}
	w.verifyStories(o, violate)
	switch e := o.end; {
	case e.err != nil:
		violate("no definite answer in the end: %v", e.err)
	case e.unresolved != nil:
		if len(o.receipts) > 0 && !w.mayBeUntold(o) {
			violate("somebody heard a receipt, and it is unresolved in the end")
		}
		if cause = w.explain(o, e.unresolved.Attempt); cause == "" {
			violate("attempt %d is unresolved in the end, and nothing explains it", e.unresolved.Attempt)
		}
	}
	return violations, cause
}

// verifyStories: no attempt is granted twice, and fences grow.
func (w *world) verifyStories(o *operation, violate func(string, ...any)) {
	for i, s := range o.stories {
		for _, other := range o.stories[:i] {
			switch {
			case s.attempt == other.attempt:
				violate("attempt %d was granted twice", s.attempt)
			case (s.attempt < other.attempt) != (s.fence < other.fence):
				violate("attempt %d has the fence %d, attempt %d has %d", s.attempt, s.fence, other.attempt, other.fence)
			}
		}
	}
}

// mayBeUntold: an owner had its receipt, and could not tell the daemon.
func (w *world) mayBeUntold(o *operation) bool {
	for _, s := range o.stories {
		if s.unrecorded != nil {
			return true
		}
	}
	return false
}

// explain finds what made the outcome of an attempt unknown; "" = nothing did.
func (w *world) explain(o *operation, attempt int32) string {
	s := o.story(attempt)
	switch {
	case s == nil && o.unheard:
		return unheardGrant
	case s == nil:
		return ""
	case s.trouble == leaseLost && !w.killedDuring(s.start, s.end):
		return ""
	case s.trouble != "":
		return s.trouble
	case s.unrecorded != nil && w.killedDuring(s.start, s.end+10*time.Second):
		return untold
	}
	return ""
}

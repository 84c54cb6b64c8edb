package torture

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/idemd/idemd/clients/go/idem"
)

// Why an outcome can be unknown.
const (
	clientDied   = "a client died inside the effect"
	clientHungUp = "a client hung up inside the effect"
	bankHungUp   = "the bank hung up inside the effect"
	leaseLost    = "the daemon was killed inside the effect, when the lease had to be extended"
	stalled      = "this very process was stalled when the lease had to be extended"
	unheardGrant = "the daemon was killed between a Reserve that got no answer and its withdrawal"
)

// violate notes a broken rule.
type violate func(format string, args ...any)

// verify tells which rules an operation breaks, and, if it is unresolved, why.
func (w *world) verify(o *operation) (violations []string, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	note := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	violations = append(violations, o.wrong...)
	w.verifyLedger(o, note)
	o.verifyStories(note)
	o.verifyFinished(note)
	tenures := o.tenures()
	o.verifyLeases(tenures, note)
	w.verifyLosses(o, tenures, note)
	switch e := o.end; {
	case e.err != nil:
		note("no definite answer in the end: %v", e.err)
	case e.unresolved != nil:
		if len(o.receipts) > 0 {
			note("somebody heard a receipt, and it is unresolved in the end")
		}
		if cause = w.explain(o, tenures, e.unresolved); cause == "" {
			note("attempt %d is unresolved in the end, and nothing explains it", e.unresolved.Attempt)
		}
	case e.expired && o.plan.retention > time.Minute:
		note("it may have expired in the end, with a retention of %v", o.plan.retention)
	}
	return violations, cause
}

// verifyLedger: one effect at most, and what was heard is what is in the ledger.
func (w *world) verifyLedger(o *operation, violate violate) {
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
}

// verifyStories: no attempt is granted twice, and fences grow.
func (o *operation) verifyStories(violate violate) {
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

// verifyFinished: once somebody was told that it is finished, everybody who asks after that
// hears the result until the retention is over.
func (o *operation) verifyFinished(violate violate) {
	finished, earliest := notYet, notYet
	for _, t := range o.traces {
		for _, c := range t.calls {
			if c.decision == replay || c.method == "Complete" && c.code == codes.OK {
				finished = min(finished, c.heard)
			}
			if c.method == "Complete" || c.method == "Fail" || c.method == "Resolve" {
				earliest = min(earliest, c.sent) // also if its answer got lost
			}
		}
	}
	for _, t := range o.traces {
		for _, c := range t.calls {
			forgotten := c.reason == string(idem.KeyMayHaveExpired) && c.heard >= earliest+o.plan.retention
			if c.method == "Reserve" && c.sent > finished && c.answered() && c.decision != replay && !forgotten && !c.away() {
				violate("it was finished at %v, and at %v it is%s", finished, c.heard, c.String())
			}
		}
	}
}

// away: the daemon could not decide.
func (r *rpc) away() bool { return r.code == codes.Unavailable }

func (o *operation) tenures() (all []tenure) {
	for _, t := range o.traces {
		if h, granted := t.tenure(0); granted {
			if s := o.story(h.attempt); s != nil {
				h, _ = t.tenure(s.began)
			}
			all = append(all, h)
		}
	}
	return all
}

// verifyLeases: nobody hears that an attempt is over, or is granted a later one, while its
// owner is within its lease and has told nothing.
func (o *operation) verifyLeases(tenures []tenure, violate violate) {
	for _, t := range o.traces {
		for _, c := range t.calls {
			for _, h := range tenures {
				over := c.decision == unresolved && c.attempt == h.attempt || c.decision == owned && c.attempt > h.attempt
				if over && h.held(c) {
					violate("attempt %d held its lease until %v, and at %v it was over:%s", h.attempt, h.until, c.heard, c.String())
				}
			}
		}
	}
}

// verifyLosses: an owner that lives and works loses its lease only where the daemon was killed
// when the lease had to be extended, and only after it has tried to; or else where this
// process, and with it every owner, was stalled.
func (w *world) verifyLosses(o *operation, tenures []tenure, violate violate) {
	for _, h := range tenures {
		s := o.story(h.attempt)
		if s == nil || s.trouble == clientDied || !h.lost() || w.lossOf(h) != "" {
			continue
		}
		if h.asked {
			violate("attempt %d lost its lease at %v, and the daemon was there", h.attempt, h.until)
		} else {
			violate("attempt %d let its lease pass at %v and did not extend it", h.attempt, h.until)
		}
	}
}

// lossOf is why a lease could be lost; "" = nothing made it so.
func (w *world) lossOf(h tenure) string {
	switch {
	case h.asked && w.killedDuring(h.due, h.until):
		return leaseLost
	case w.stalledDuring(h.due, h.until):
		return stalled
	}
	return ""
}

// explain finds what made the outcome of an attempt unknown; "" = nothing did.
func (w *world) explain(o *operation, tenures []tenure, u *idem.UnresolvedError) string {
	if s := o.story(u.Attempt); s != nil && s.trouble != leaseLost {
		return s.trouble
	}
	for _, h := range tenures {
		if h.attempt == u.Attempt {
			return w.lossOf(h)
		}
	}
	for _, t := range o.traces {
		if t.owner == u.Owner && w.killedBeforeWithdrawal(t) {
			return unheardGrant
		}
	}
	return ""
}

// killedBeforeWithdrawal: a Reserve with this token got no answer, and the daemon was killed
// before the last try to give it up. Else that must have worked.
func (w *world) killedBeforeWithdrawal(t *trace) bool {
	if _, granted := t.tenure(0); granted {
		return false
	}
	first, last := notYet, time.Duration(0)
	for _, c := range t.calls {
		if c.method == "Reserve" && !c.answered() {
			first = min(first, c.sent)
		}
		last = max(last, c.heard)
	}
	return first < last && w.killedDuring(first, last)
}

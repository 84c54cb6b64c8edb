package torture

import "time"

// tenure is the time for which one token certainly held its attempt, as the answers on the
// wire have told it. All clocks are the same: this process's.
type tenure struct {
	attempt int32
	// from is when it certainly was its owner's. What was decided before may have been
	// decided before it was granted, or lapsed: a Reserve that got no answer came first.
	from time.Duration
	// sent, due and until are of its last lease: when it was asked for, when it had to be
	// extended, and when it was over as far as its owner can know, nine tenths of it later.
	sent, due, until time.Duration
	// told is when its outcome was first sent; never = it was not.
	told time.Duration
	// asked: that lease was asked to be extended, in vain.
	asked bool
}

// notYet is later than everything.
const notYet = time.Duration(1<<63 - 1)

// tenure reads the trace of a token whose owner began its effect at that moment, or never;
// false = nothing was granted to it.
func (t *trace) tenure(began time.Duration) (h tenure, granted bool) {
	h.told = notYet
	for _, c := range t.calls {
		switch {
		case c.method == "Complete", c.method == "Fail":
			h.told = min(h.told, c.sent)
		case c.method == "Reserve" && !granted && !c.answered():
			h.from = notYet
		case c.method == "Reserve" && !granted && c.decision == owned:
			granted = true
			h.attempt, h.from = c.attempt, min(h.from, c.heard)
			h.extended(c.sent, c.lease)
		case c.lease > 0 && granted && c.heard <= h.until:
			h.extended(c.sent, c.lease)
		case c.lease > 0 && granted && c.heard <= began:
			// It was over meanwhile, and is its owner's again before the effect begins. Later
			// that is too late: an owner without a lease has stopped.
			h.from = c.heard
			h.extended(c.sent, c.lease)
		}
	}
	for _, c := range t.calls {
		h.asked = h.asked || c.method == "Extend" && c.sent > h.sent && c.sent <= h.until
	}
	return h, granted
}

// extended takes a lease that was granted on a call.
func (h *tenure) extended(sent, lease time.Duration) {
	if until := sent + lease*9/10; until > h.until {
		h.sent, h.due, h.until = sent, sent+lease/3, until
	}
}

// held: whenever that call was decided on, its owner was within its lease and had not told
// its outcome. (About an attempt, nothing is decided before it was granted.)
func (h *tenure) held(c rpc) bool { return c.sent >= h.from && c.heard <= min(h.until, h.told) }

// lost: the lease was over before the outcome was told.
func (h *tenure) lost() bool { return h.until < h.told }

package reservation

// Decide holds every rule of the state machine: what becomes of the record at an
// address (nil = there is none) when a command meets it at a time, and what the
// caller is answered. It returns rec itself where nothing changes: then there is
// nothing to store.
//
// now must be read after the record is held against other writers, or the answer is
// about a moment that has passed.
func Decide(now Time, rec *Record, cmd Command) (*Record, Outcome) {
	if err := cmd.Validate(); err != nil {
		return rec, err
	}
	live := rec
	if rec != nil && rec.Expired(now) {
		live = nil
	}
	next, out := cmd.decide(now, live, rec)
	if next == nil {
		next = rec
	}
	return next, out
}

func notFound() *Error {
	return Errorf(NotFound, "key", "there is no reservation at this address, or its retention is over")
}

func (c *Lookup) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	if rec == nil {
		return nil, notFound()
	}
	return nil, &Found{Record: rec.shownAt(now), Shown: rec.Shown(now), Now: now}
}

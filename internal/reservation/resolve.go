package reservation

func (c *Resolve) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	switch {
	case rec == nil:
		return nil, notFound()
	case c.given(rec):
		return nil, repeated(rec)
	case rec.Version != c.ExpectedVersion:
		return nil, versionConflict(rec, c.ExpectedVersion)
	case !rec.Unresolved(now) && !(c.BreakLease && rec.State == Processing):
		return nil, Errorf(NotUnresolved, "",
			"the reservation is %s: there is nothing to resolve", rec.State)
	case c.Verdict == VerdictNotExecuted && !rec.AttemptsLeft() && rec.AttemptsAllowed >= MaxAttempts:
		return nil, Errorf(AttemptsExhausted, "verdict",
			"all %d attempts are used up: no further one can be granted; give another verdict", MaxAttempts)
	}
	next := rec.change()
	entry := HistoryEntry{
		At: now, Kind: Resolved, Attempt: rec.Attempt, Owner: rec.Owner, From: rec.Shown(now), To: c.Verdict.State(),
		Actor: c.Actor, Reason: c.Reason, Evidence: c.Evidence,
	}
	if c.Result != nil {
		next.Result = c.Result.keptBy(c.BodyRetention, c.DropBody)
		entry.ResultDigest = c.Result.Digest()
	}
	next.remember(entry)
	next.Judged = true
	next.finish(now, c.Verdict.State(), 0)
	if c.Verdict == VerdictNotExecuted {
		next.RetryAt = now
		if !rec.AttemptsLeft() {
			next.AttemptsAllowed = rec.Attempt + 1
		}
	}
	return next, recorded(next)
}

func versionConflict(rec *Record, expected int64) *Error {
	err := Errorf(VersionConflict, "expected_version",
		"the reservation has changed since: expected version %d, it is %d; look again", expected, rec.Version)
	err.Version = rec.Version
	return err
}

// given tells whether this very verdict was the last change of the record.
func (c *Resolve) given(rec *Record) bool {
	return rec.Judged && rec.ErasedAt == 0 && rec.State == c.Verdict.State() && rec.Version == c.ExpectedVersion+1 &&
		(c.Result == nil || c.Result.Equal(rec.Result))
}

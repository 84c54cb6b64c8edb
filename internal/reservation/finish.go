package reservation

import "time"

func (c *Complete) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	if rec == nil {
		return nil, notFound()
	}
	told := report{c.Token, Completed, &c.Result}
	if c.Token.Digest() != rec.Token {
		return told.refuse(now, rec, staleToken())
	}
	switch {
	case rec.State == Succeeded && rec.holds(&c.Result):
		return nil, repeated(rec)
	case rec.State == Processing, rec.State == Unknown:
	case rec.State == FailedRetryable && (rec.Judged || rec.Told == ToldUnknown):
		// Somebody said "not executed", or that it may be repeated: the owner knows
		// better, and no other attempt has started yet.
	default:
		return told.refuse(now, rec, alreadyFinished(rec))
	}
	next := rec.change()
	if rec.State == FailedRetryable {
		next.remember(HistoryEntry{
			At: now, Kind: Overturned, Attempt: rec.Attempt, Owner: rec.Owner,
			From: FailedRetryable, To: Succeeded, Outcome: Completed,
		})
	}
	next.tell(Completed, c.Kept())
	next.finish(now, Succeeded, c.Retention)
	return next, recorded(next)
}

func (c *Fail) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	if rec == nil {
		return nil, notFound()
	}
	told := report{c.Token, c.Kind, &c.Result}
	if c.Token.Digest() != rec.Token {
		return told.refuse(now, rec, staleToken())
	}
	switch {
	case rec.Told == c.Kind && !rec.Judged && rec.holds(&c.Result):
		return nil, repeated(rec)
	case rec.State != Processing && rec.State != Unknown:
		return told.refuse(now, rec, alreadyFinished(rec))
	}
	to := c.leadsTo(rec)
	if to == FailedRetryable && wholeMicros(c.RetryAfter) >= max(rec.Retention, wholeMicros(c.Retention)) {
		return nil, Errorf(DurationOutOfRange, "retry_after",
			"retry_after must be shorter than the retention of the record, %v", max(rec.Retention, c.Retention))
	}
	next := rec.change()
	if c.Kind == ToldUnknown && rec.State == Processing {
		next.remember(HistoryEntry{
			At: now, Kind: DeclaredUnknown, Attempt: rec.Attempt, Owner: rec.Owner,
			From: Processing, To: to, Outcome: ToldUnknown,
		})
	}
	next.tell(c.Kind, c.Result.keptBy(c.BodyRetention, c.DropBody))
	if to == Unknown {
		next.declareUnknown(now, c.Retention)
	} else {
		next.finish(now, to, c.Retention)
	}
	if to == FailedRetryable {
		next.RetryAt = now.Add(c.RetryAfter)
	}
	return next, recorded(next)
}

// leadsTo is the state that a failure makes of a record under way.
func (c *Fail) leadsTo(rec *Record) State {
	switch {
	case c.Kind == ToldUnknown && (rec.OnLapse == Hold || !rec.AttemptsLeft()):
		return Unknown
	case c.Kind == ToldFinal || !rec.AttemptsLeft():
		return FailedFinal
	}
	return FailedRetryable
}

// Kept is what is stored of the result.
func (c *Complete) Kept() *Result { return c.Result.keptBy(c.BodyRetention, c.DropBody) }

// holds tells whether this is the result that the record holds, or held: of one that was
// erased nobody can tell any more, and whoever repeats it has nothing to add.
func (r *Record) holds(told *Result) bool { return r.ErasedAt != 0 || r.Result.Equal(told) }

// tell stores what the owner said.
func (r *Record) tell(kind OutcomeKind, result *Result) {
	r.Told, r.Judged, r.Result, r.ErasedAt = kind, false, result, 0
}

// finish starts the retention. It is never shortened.
func (r *Record) finish(now Time, to State, retention time.Duration) {
	r.State = to
	r.Retention = max(r.Retention, wholeMicros(retention))
	r.FinishedAt = now
	r.ExpiresAt = now.Add(r.Retention)
	r.RetryAt, r.UnknownSince = 0, 0
}

func (r *Record) declareUnknown(now Time, retention time.Duration) {
	if r.State != Unknown {
		r.UnknownSince = now
	}
	r.State = Unknown
	r.Retention = max(r.Retention, wholeMicros(retention))
}

func recorded(rec *Record) *Recorded {
	return &Recorded{Version: rec.Version, ExpiresAt: rec.ExpiresAt, State: rec.State}
}

func repeated(rec *Record) *Recorded {
	return &Recorded{Version: rec.Version, ExpiresAt: rec.ExpiresAt, State: rec.State, Repeated: true}
}

// report is what a Complete or Fail told, for evidence where it is refused.
type report struct {
	token  Token
	kind   OutcomeKind
	result *Result
}

// refuse answers err and keeps the evidence, equal evidence once. A refused Complete
// by a token that the record has had also counts the version up: whoever was about
// to resolve must look again.
func (t report) refuse(now Time, rec *Record, err *Error) (*Record, Outcome) {
	digest := t.token.Digest()
	attempt := rec.attemptOf(digest)
	entry := HistoryEntry{
		At: now, Kind: StaleOutcome, Attempt: attempt, From: rec.Shown(now), To: rec.Shown(now),
		Outcome: t.kind, TokenDigest: digest.Short(), ResultDigest: t.result.Digest(),
	}
	if attempt == rec.Attempt {
		entry.Owner = rec.Owner
	}
	if rec.hasEvidence(entry) {
		return nil, err
	}
	next := *rec
	next.addEvidence(entry)
	if t.kind == Completed && attempt != 0 {
		next.Version++
	}
	return &next, err
}

func staleToken() *Error {
	return Errorf(StaleToken, "owner_token",
		"this token does not own the latest attempt: another attempt was granted since, or the token was never granted")
}

func alreadyFinished(rec *Record) *Error {
	return Errorf(AlreadyFinished, "",
		"the attempt has ended as %s already; look the reservation up", rec.State)
}

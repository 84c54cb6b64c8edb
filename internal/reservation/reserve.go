package reservation

import "slices"

func (c *Reserve) decide(now Time, rec, expired *Record) (*Record, Outcome) {
	if c.FirstAttemptAt > now.Add(MaxClockAhead) {
		return nil, Errorf(TimeInvalid, "first_attempt_at",
			"first_attempt_at lies more than %v ahead of the store's clock", MaxClockAhead)
	}
	if rec == nil {
		return c.reserveAbsent(now, expired)
	}
	if !rec.Fingerprint.Equal(c.Fingerprint) {
		return nil, Errorf(FingerprintMismatch, "fingerprint",
			"this key was first used for another operation (other fingerprint); use a new key for a new operation")
	}
	switch rec.State {
	case Processing:
		return c.reserveProcessing(now, rec)
	case Unknown:
		return nil, unresolved(now, rec)
	case FailedRetryable:
		if now < rec.RetryAt {
			return nil, &InProgress{
				State: FailedRetryable, Attempt: rec.Attempt, Owner: rec.Owner,
				LeaseExpiresAt: rec.LeaseExpiresAt, RetryAfter: rec.RetryAt.Sub(now),
			}
		}
		return c.grantNext(now, rec)
	default: // Succeeded, FailedFinal
		return nil, &Replay{
			State: rec.State, Result: rec.shownAt(now).Result, Attempt: rec.Attempt, ReservedAt: rec.ReservedAt,
			FinishedAt: rec.FinishedAt, ExpiresAt: rec.ExpiresAt, PolicyVersion: rec.PolicyVersion, Trace: rec.Trace,
		}
	}
}

func (c *Reserve) reserveAbsent(now Time, expired *Record) (*Record, Outcome) {
	if c.FirstAttemptAt != 0 && now.Sub(c.FirstAttemptAt) >= c.Retention {
		return nil, Errorf(KeyMayHaveExpired, "first_attempt_at",
			"the operation was first tried longer ago than its retention: its record may have been forgotten; find out whether it was done")
	}
	next := &Record{
		Fingerprint:     c.Fingerprint,
		AttemptsAllowed: c.Attempts,
		Fence:           int64(now),
		OnLapse:         c.OnLapse,
		PolicyVersion:   c.PolicyVersion,
		ReservedAt:      now,
		Trace:           c.Trace,
	}
	if expired != nil {
		next.Fence = max(next.Fence, expired.Fence+1)
		next.Version = expired.Version + 1
	}
	next.Version = max(next.Version, next.Fence)
	c.grant(now, next)
	return next, owned(now, next, false)
}

func (c *Reserve) reserveProcessing(now Time, rec *Record) (*Record, Outcome) {
	current, lapsed := c.Token.Digest() == rec.Token, rec.Lapsed(now)
	switch {
	case current && !lapsed:
		return nil, owned(now, rec, true)
	case current && now < rec.LeaseCapAt:
		next := rec.change()
		next.LeaseExpiresAt = min(now.Add(c.Lease), rec.LeaseCapAt)
		return next, owned(now, next, true)
	case !lapsed:
		return nil, &InProgress{
			State: Processing, Attempt: rec.Attempt, Owner: rec.Owner, LeaseExpiresAt: rec.LeaseExpiresAt,
			RetryAfter: min(rec.LeaseExpiresAt.Sub(now), MaxRetryHint),
		}
	case rec.Unresolved(now):
		return nil, unresolved(now, rec)
	}
	return c.grantNext(now, rec)
}

// grantNext gives the next attempt of a record that has one left.
func (c *Reserve) grantNext(now Time, rec *Record) (*Record, Outcome) {
	if rec.attemptOf(c.Token.Digest()) != 0 {
		return nil, Errorf(TokenSpent, "owner_token",
			"this token has had its attempt; make a new one for a new attempt")
	}
	next := rec.shownAt(now).change()
	next.TookOver = rec.State == Processing
	if next.TookOver {
		next.remember(HistoryEntry{
			At: now, Kind: Takeover, Attempt: rec.Attempt, Owner: rec.Owner, From: Processing, To: Processing,
		})
	}
	next.Spent = append(slices.Clip(rec.Spent), rec.Token.Short())
	next.Fence = max(int64(now), rec.Fence+1)
	c.grant(now, next)
	return next, owned(now, next, false)
}

// grant sets what every grant sets.
func (c *Reserve) grant(now Time, next *Record) {
	next.State = Processing
	next.Attempt++
	next.Token = c.Token.Digest()
	next.Owner = c.Owner
	next.CheckpointSequence = 0
	next.Retention = max(next.Retention, wholeMicros(c.Retention))
	next.LeaseCapAt = now.Add(c.LeaseCap)
	next.LeaseExpiresAt = min(now.Add(c.Lease), next.LeaseCapAt)
	next.FinishedAt, next.ExpiresAt, next.RetryAt = 0, 0, 0
	next.Told, next.Judged, next.ErasedAt = 0, false, 0
}

func owned(now Time, rec *Record, repeated bool) *Owned {
	return &Owned{
		Attempt: rec.Attempt, Fence: rec.Fence, LeaseExpiresAt: rec.LeaseExpiresAt,
		LeaseRemaining: rec.LeaseExpiresAt.Sub(now), Takeover: rec.TookOver, Repeated: repeated,
		Checkpoint: rec.Checkpoint, PolicyVersion: rec.PolicyVersion, LastFailure: rec.Result,
		ReservedAt: rec.ReservedAt,
	}
}

func unresolved(now Time, rec *Record) *Unresolved {
	since := rec.UnresolvedSince(now)
	return &Unresolved{
		Since: since, Attempt: rec.Attempt, Owner: rec.Owner, Checkpoint: rec.Checkpoint,
		Version: rec.Version, PolicyVersion: rec.PolicyVersion, Elapsed: now.Sub(since),
	}
}

package reservation

import "fmt"

// Check reports what is impossible about a stored record, nil if nothing is. Decide
// never makes such a record: one that fails was damaged, or written by a bug. Times of
// different calls are not compared: a database's clock can be set back in between.
func (r *Record) Check() error {
	for _, rule := range []struct {
		holds bool
		says  string
	}{
		{r.State >= Processing && r.State <= Unknown, "state is one of the five stored ones"},
		{r.Fingerprint.validate() == nil, "fingerprint is within its limits"},
		{r.OnLapse == Hold || r.OnLapse == Rerun, "on_lapse is HOLD or RERUN"},
		{r.Attempt >= 1 && r.Attempt <= r.AttemptsAllowed && r.AttemptsAllowed <= MaxAttempts, "1 <= attempt <= attempts allowed <= 100"},
		{len(r.Spent) == int(r.Attempt)-1, "one spent token for each earlier attempt"},
		{r.Fence >= int64(r.ReservedAt) && r.Fence > 0, "the fence is not behind the first grant"},
		{r.Version > 0, "the version is positive"},
		{r.ReservedAt > 0 && r.LeaseExpiresAt > 0 && r.LeaseCapAt >= r.LeaseExpiresAt, "it was reserved, and the lease ends at its cap at the latest"},
		{r.Retention >= MinRetention && r.Retention <= MaxRetention, "the retention is within its limits"},
		{r.State.Finished() == (r.FinishedAt != 0), "finished_at is set in finished states only"},
		{!r.State.Finished() && r.ExpiresAt == 0 || r.State.Finished() && r.ExpiresAt == r.FinishedAt.Add(r.Retention), "expires_at = finished_at + retention, in finished states only"},
		{(r.State == FailedRetryable) == (r.RetryAt != 0), "retry_at is set in FAILED_RETRYABLE only"},
		{r.RetryAt == 0 || r.RetryAt < r.ExpiresAt, "the retry time comes before the record is forgotten"},
		{r.State != FailedRetryable || r.AttemptsLeft(), "FAILED_RETRYABLE has an attempt left"},
		{(r.State == Unknown) == (r.UnknownSince != 0), "unknown_since is set in UNKNOWN only"},
		{!(r.State == Succeeded || r.State == FailedFinal) || r.Result != nil, "what is replayed has a result"},
		{r.State != Processing || r.Told == 0 && !r.Judged, "nothing is told nor judged of an attempt under way"},
		{r.toldFits(), "the state follows from what was told or judged"},
		{r.ErasedAt == 0 || r.State.Finished() && r.Result.erased() && (len(r.Checkpoint) == 0 || r.State == FailedRetryable), "what was erased has finished, and is not there"},
		{len(r.Checkpoint) <= MaxCheckpointBytes, "the checkpoint is within its limit"},
		{r.Result.validate() == nil, "the result is within its limits"},
		{len(r.History) <= MaxHistory && len(r.Evidence) <= MaxEvidence, "the history is within its bounds"},
	} {
		if !rule.holds {
			return fmt.Errorf("impossible record: it must hold that %s (state %v, attempt %d, version %d)", rule.says, r.State, r.Attempt, r.Version)
		}
	}
	return r.checkHistory()
}

func (r *Record) toldFits() bool {
	if r.Judged {
		return r.State.Finished()
	}
	switch r.Told {
	case 0:
		return r.State == Processing
	case Completed:
		return r.State == Succeeded
	case ToldRetryable:
		return r.State == FailedRetryable || r.State == FailedFinal && !r.AttemptsLeft()
	case ToldFinal:
		return r.State == FailedFinal
	case ToldUnknown:
		return r.State == Unknown || r.State == FailedRetryable && r.OnLapse == Rerun
	}
	return false
}

func (r *Record) checkHistory() error {
	for _, entry := range r.History {
		if entry.Kind < Takeover || entry.Kind >= StaleOutcome {
			return fmt.Errorf("impossible record: %v stands in its history", entry.Kind)
		}
	}
	for _, entry := range r.Evidence {
		if entry.Kind != StaleOutcome {
			return fmt.Errorf("impossible record: %v stands in its evidence", entry.Kind)
		}
	}
	return nil
}

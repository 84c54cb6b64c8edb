package reservation

func (c *Erase) decide(now Time, rec, _ *Record) (*Record, Outcome) {
	switch {
	case rec == nil:
		return nil, notFound()
	case !rec.State.Finished():
		return nil, Errorf(NotFinished, "",
			"the reservation is %s: what it holds is needed to settle it; resolve it first", rec.Shown(now))
	case rec.ErasedAt != 0:
		return nil, repeated(rec)
	case c.ExpectedVersion != 0 && c.ExpectedVersion != rec.Version:
		return nil, versionConflict(rec, c.ExpectedVersion)
	}
	next := rec.change()
	next.Result = rec.Result.erase()
	if next.State != FailedRetryable { // whose next attempt goes on from it
		next.Checkpoint = nil
	}
	next.ErasedAt = now
	return next, recorded(next)
}

// erase is what is left of a result: that there was one, and its status.
func (r *Result) erase() *Result {
	if r == nil {
		return nil
	}
	return &Result{Status: r.Status, BodyOmitted: true}
}

// erased tells whether nothing of a result is left.
func (r *Result) erased() bool {
	return r == nil || r.BodyOmitted && len(r.Headers) == 0 && r.ContentType == "" && len(r.Body) == 0 &&
		r.BodyRef == "" && r.DecisionID == "" && r.Whole == ResultDigest{}
}

package daemon

import (
	"context"
	"time"
)

const (
	// shareEvery is how often the daemons on one store share the quotas.
	shareEvery = time.Second
	// countEvery is how often the store counts what is live, where quotas bound it, and
	// countPart how much of the time it may be busy with that.
	countEvery = 2 * time.Second
	countPart  = 10
	// quotaTimeout bounds each.
	quotaTimeout = 5 * time.Second
)

// keepQuotas shares quotas with other daemons, and keeps count of what is live. What the
// store can't do now stays as it was: readiness says what is wrong.
func (d *daemon) keepQuotas(ctx context.Context) {
	ticker := time.NewTicker(shareEvery)
	defer ticker.Stop()
	var next time.Time
	for {
		d.shareQuotas(ctx)
		if began := time.Now(); !began.Before(next) {
			counting, cancel := context.WithTimeout(ctx, quotaTimeout)
			_ = d.engine.CountLive(counting)
			cancel()
			next = began.Add(max(countEvery-shareEvery/2, countPart*time.Since(began)))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

const (
	// measureRest is between two rounds of measuring what is stored; within one it rests
	// measurePart times as long as a step took, and at least measureStep.
	measureRest = 30 * time.Second
	measureStep = 10 * time.Millisecond
	measurePart = 9
)

// measureStored measures what is stored where quotas bound it, slowly and all the time.
func (d *daemon) measureStored(ctx context.Context) {
	for {
		began := time.Now()
		step, cancel := context.WithTimeout(ctx, quotaTimeout)
		through, err := d.engine.MeasureStored(step)
		cancel()
		rest := max(measureStep, measurePart*time.Since(began))
		if through || err != nil {
			rest = measureRest
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

func (d *daemon) shareQuotas(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quotaTimeout)
	defer cancel()
	_ = d.engine.ShareQuotas(ctx)
}

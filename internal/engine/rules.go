package engine

import (
	"context"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// rules are the policies in force with what was taken of their quotas. They are swapped
// as a whole; a call keeps those that it began with.
type rules struct {
	policies Policies
	quotas   map[Scope]*quota
}

// newRules makes rules in which a quota whose limits stay goes on where it was.
func newRules(policies Policies, before *rules, now time.Time) *rules {
	r := &rules{policies: policies, quotas: make(map[Scope]*quota, len(policies.Quotas))}
	for scope, limits := range policies.Quotas {
		if before != nil && before.quotas[scope] != nil && before.quotas[scope].limits == limits {
			r.quotas[scope] = before.quotas[scope]
			continue
		}
		r.quotas[scope] = newQuota(scope, limits, now)
	}
	return r
}

// of are the quotas that hold for an address: its namespace's and its tenant's.
func (r *rules) of(a reservation.Address) (quotas [2]*quota) {
	if len(r.quotas) == 0 {
		return quotas
	}
	return [2]*quota{r.quotas[Scope{a.Tenant, a.Namespace}], r.quotas[Scope{Tenant: a.Tenant}]}
}

// takeRate takes a Reserve from the rates of its quotas: from all, or from none.
func takeRate(quotas [2]*quota, now time.Time) *reservation.Error {
	for i, q := range quotas {
		if q == nil {
			continue
		}
		if wait := q.take(now); wait > 0 {
			if i > 0 && quotas[0] != nil {
				quotas[0].giveBack()
			}
			return q.rateLimited(wait)
		}
	}
	return nil
}

// enterLive counts a Reserve among what may be live: in all quotas, or in none. The first
// that has no room is returned.
func enterLive(quotas [2]*quota) (full *quota) {
	for i, q := range quotas {
		if q == nil || q.enter() {
			continue
		}
		if i > 0 && quotas[0] != nil && quotas[0].limits.Live > 0 {
			quotas[0].settle(false)
		}
		return q
	}
	return nil
}

// settled ends what was counted for a call, once its outcome is known; nil = it was
// dropped.
func (e *Engine) settled(c *call) {
	granted, ended := false, false
	switch o := c.outcome.(type) {
	case *reservation.Owned:
		granted = !o.Repeated
	case *reservation.Recorded:
		_, resolved := c.command.(*reservation.Resolve)
		ended = !o.Repeated && !resolved
	}
	leaveLive(c.entered, granted)
	bytes := stores(c)
	if !ended && bytes == 0 {
		return
	}
	for _, q := range e.rules.Load().of(c.command.Target()) {
		if q == nil {
			continue
		}
		if q.stored(bytes); ended {
			q.finished()
		}
	}
}

// leaveLive ends what enterLive began.
func leaveLive(entered [2]*quota, granted bool) {
	for _, q := range entered {
		if q != nil && q.limits.Live > 0 {
			q.settle(granted)
		}
	}
}

// SetPolicies puts other policies in force. Calls under way keep those that they began
// with. Error: what Policies.Validate says; then nothing changes.
func (e *Engine) SetPolicies(policies Policies) error {
	if err := policies.Validate(); err != nil {
		return err
	}
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	e.rules.Store(newRules(policies, e.rules.Load(), time.Now()))
	return nil
}

// CountLive has the store count what is live, for the quotas that bound it. Call it every
// few seconds: what this daemon grants in between it counts itself. It does nothing where
// there are no such quotas. Error: STORE_UNAVAILABLE; the count before stays.
func (e *Engine) CountLive(ctx context.Context) error {
	rules := e.rules.Load()
	marks := make(map[*quota]int64)
	for _, q := range rules.quotas {
		if q.limits.Live > 0 {
			marks[q] = q.mark()
		}
	}
	if len(marks) == 0 {
		return nil
	}
	stats, err := e.store.Stats(ctx)
	if err != nil {
		return err
	}
	byTenant := make(map[string]int64)
	for scope, counts := range stats.Scopes {
		byTenant[scope.Tenant] += counts.Live
	}
	for q, mark := range marks {
		live := byTenant[q.scope.Tenant]
		if q.scope.Namespace != "" {
			live = stats.Scopes[store.Scope(q.scope)].Live
		}
		q.recount(mark, live)
	}
	return nil
}

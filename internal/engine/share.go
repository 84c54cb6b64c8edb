package engine

import (
	"context"

	"github.com/idemd/idemd/internal/store"
)

// ShareQuotas shares the quotas with the other daemons on the store, by what each is asked
// for. Call it every second, and once before calls are answered; it does nothing where
// there are no quotas, or no other daemons can be. Error: STORE_UNAVAILABLE; the shares stay
// as they were.
func (e *Engine) ShareQuotas(ctx context.Context) error {
	sharer, shared := e.store.(store.Sharer)
	quotas := e.rules.Load().quotas
	if !shared || len(quotas) == 0 {
		return nil
	}
	own := make(map[store.Scope]float64)
	for scope, q := range quotas {
		if demand, told := q.demand(); told {
			own[store.Scope(scope)] = demand
		}
	}
	all, err := sharer.Share(ctx, e.name, own)
	if err != nil {
		return err
	}
	for scope, q := range quotas {
		scope := store.Scope(scope)
		q.setShare(shareOf(own[scope], all.Scopes[scope], all.Daemons))
	}
	return nil
}

// evenly is the part of a quota that every daemon has whatever it is asked for, so that one
// which begins to be asked need not wait until the next time that quotas are shared.
const evenly = 0.2

// shareOf is a daemon's part of a quota: of what is left beside the even parts, as much as
// the demand is its own. The shares of all daemons are one in all.
func shareOf(own, all float64, daemons int) float64 {
	if daemons <= 1 {
		return 1
	}
	even := 1 / float64(daemons)
	if all <= 0 {
		return even
	}
	return evenly*even + (1-evenly)*min(1, own/all)
}

// noDemand is what is too little to be told.
const noDemand = 0.01

// demand is what was asked for lately, in Reserves a second: what counts is halved every
// second. It is told as long as there is any, and once when there is none any more.
func (q *quota) demand() (demand float64, told bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.lately
	q.lately = (q.lately + float64(q.asked)) / 2
	q.asked = 0
	if q.lately < noDemand {
		q.lately = 0
	}
	return q.lately, q.lately > 0 || before > 0
}

func (q *quota) setShare(share float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.share = share
}

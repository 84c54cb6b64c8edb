package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// shared is a store of several daemons.
type shared struct {
	store.Store
	mu     sync.Mutex
	demand map[string]map[store.Scope]float64
	err    error
}

func (s *shared) Share(_ context.Context, daemon string, demand map[store.Scope]float64) (store.Demand, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return store.Demand{}, s.err
	}
	if s.demand == nil {
		s.demand = make(map[string]map[store.Scope]float64)
	}
	s.demand[daemon] = demand
	all := store.Demand{Daemons: len(s.demand), Scopes: make(map[store.Scope]float64)}
	for _, told := range s.demand {
		for scope, asked := range told {
			all.Scopes[scope] += asked
		}
	}
	return all, nil
}

func TestTheSharesOfAllDaemonsAreOneInAll(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		daemons := 1 + random.IntN(9)
		demand, all := make([]float64, daemons), 0.0
		for i := range demand {
			if random.IntN(3) > 0 {
				demand[i] = random.Float64() * 1000
			}
			all += demand[i]
		}
		sum := 0.0
		for _, own := range demand {
			share := shareOf(own, all, daemons)
			if sum += share; share <= 0 {
				t.Fatalf("seed %d: a daemon of %d has nothing", seed, daemons)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("seed %d: the shares of %v are %v in all", seed, demand, sum)
		}
	}
}

// Together daemons allow what the quota says, and the one that is asked has most of it.
func TestDaemonsOnOneStoreShareAQuotaByWhatTheyAreAsked(t *testing.T) {
	s := &shared{Store: storetest.OpenMem(t).Store}
	h := &storetest.Harness{Store: s}
	busy, idle := limited(t, h, Quotas{Rate: slowly, Burst: 100}, Quotas{}), limited(t, h, Quotas{Rate: slowly, Burst: 100}, Quotas{})
	share := func() {
		t.Helper()
		for _, e := range []*Engine{busy, idle, busy} {
			if err := e.ShareQuotas(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := 0
	granted := func(e *Engine) (granted int) {
		for range 150 {
			n++
			_, err := e.Do(t.Context(), reserve(fmt.Sprint(n), 1))
			if err == nil {
				granted++
			} else if !refusedWith(err, reservation.RateLimited) {
				t.Fatal(err)
			}
		}
		return granted
	}
	share()
	if a, b := granted(busy), granted(idle); a != 50 || b != 50 {
		t.Errorf("before anybody is asked they allow %d and %d of 100", a, b)
	}
	quota := func(e *Engine) *quota { return e.rules.Load().quotas[Scope{Tenant: "acme"}] }
	for range 10 {
		for range 99 {
			quota(busy).take(quota(busy).filled)
		}
		quota(idle).take(quota(idle).filled)
		share()
	}
	if a, b := quota(busy).share, quota(idle).share; a < 0.85 || b < 0.1 || math.Abs(a+b-1) > 0.02 {
		t.Errorf("asked 99 and 1 times they have shares of %v and %v", a, b)
	}
	// Who can't hear of the others keeps what it has.
	s.err = store.Unavailable()
	before := quota(busy).share
	if err := busy.ShareQuotas(t.Context()); err == nil || quota(busy).share != before {
		t.Errorf("with the store away: %v", err)
	}
}

func TestWhatMayBeLiveIsSharedToo(t *testing.T) {
	s := &shared{Store: storetest.OpenMem(t).Store}
	h := &storetest.Harness{Store: s}
	a, b := limited(t, h, Quotas{Live: 10}, Quotas{}), limited(t, h, Quotas{Live: 10}, Quotas{})
	for range 2 {
		for _, e := range []*Engine{a, b} {
			if err := e.ShareQuotas(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	granted := 0
	for n := range 40 {
		for _, e := range []*Engine{a, b} {
			if _, err := e.Do(t.Context(), reserve(fmt.Sprintf("%s-%d", e.name, n), 1)); err == nil {
				granted++
			} else if !refusedWith(err, reservation.QuotaExceeded) {
				t.Fatal(err)
			}
		}
	}
	if granted != 10 {
		t.Errorf("two daemons have granted %d of 10, between two counts", granted)
	}
}

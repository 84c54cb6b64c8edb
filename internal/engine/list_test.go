package engine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// pages reads all pages of a listing and counts them.
func pages(t *testing.T, e *Engine, l Listing) (keys []string, count int) {
	t.Helper()
	for {
		listed, err := e.List(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if len(listed.Entries) > l.PageSize {
			t.Fatalf("a page of %d has %d entries", l.PageSize, len(listed.Entries))
		}
		for _, entry := range listed.Entries {
			keys = append(keys, entry.Address.Tenant+"/"+entry.Address.Key)
		}
		if count++; listed.NextPageToken == "" {
			return keys, count
		}
		l.PageToken = listed.NextPageToken
	}
}

// Pages go through the tenants that may be seen, in order: each record once, and no other.
func TestPagesGoThroughTheTenantsThatMayBeSeen(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	var all []string
	for _, tenant := range []string{"a", "a-", "a.b", "b", "c"} {
		for i := range 3 {
			a := reservation.Address{Tenant: tenant, Namespace: "n", Key: fmt.Sprint("k", i)}
			h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1)})
			all = append(all, tenant+"/"+a.Key)
		}
	}
	slices.Sort(all)
	for _, tenants := range [][]string{nil, {"a"}, {"c", "a", "a.b"}, {"nobody"}, {"b", "nobody", "a-", "b"}, {}} {
		var want []string
		for _, key := range all {
			if sees(tenants, key[:len(key)-3]) {
				want = append(want, key)
			}
		}
		for size := 1; size <= 7; size++ {
			got, _ := pages(t, e, Listing{Tenants: tenants, PageSize: size})
			slices.Sort(got) // all tenants: by bytes of the whole address, which differs at "-" and "."
			if !slices.Equal(got, want) {
				t.Errorf("tenants %q by %d: %v, want %v", tenants, size, got, want)
			}
		}
	}
}

// A page of somebody with very many tenants is bounded too: it can be empty and go on.
func TestAPageLooksAtABoundedNumberOfTenants(t *testing.T) {
	h := storetest.OpenMem(t)
	counting := &countingStore{Store: h.Store}
	e := start(t, Options{Store: counting})
	var tenants []string
	for i := range 2000 {
		tenants = append(tenants, fmt.Sprintf("t%04d", i))
	}
	a := reservation.Address{Tenant: "t1999", Namespace: "n", Key: "k"}
	h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(a, 1)})
	listed, err := e.List(t.Context(), Listing{Tenants: tenants})
	if err != nil || len(listed.Entries) != 0 || listed.NextPageToken == "" || counting.lists.Load() > 1000 {
		t.Errorf("the first page: %d entries after %d looks, token %q (%v)", len(listed.Entries), counting.lists.Load(), listed.NextPageToken, err)
	}
	if keys, count := pages(t, e, Listing{Tenants: tenants, PageSize: 10}); !slices.Equal(keys, []string{"t1999/k"}) || count < 2 {
		t.Errorf("found %v on %d pages", keys, count)
	}
}

type countingStore struct {
	store.Store
	lists, counts atomic.Int64
	away          atomic.Bool
}

func (s *countingStore) List(ctx context.Context, query store.Query) (store.Page, error) {
	s.lists.Add(1)
	return s.Store.List(ctx, query)
}

func (s *countingStore) Stats(ctx context.Context) (store.Stats, error) {
	if s.counts.Add(1); s.away.Load() {
		return store.Stats{}, store.Unavailable()
	}
	return s.Store.Stats(ctx)
}

func TestCountsAreReadOnceForAllWhoAsk(t *testing.T) {
	h := storetest.OpenMem(t)
	h.Store.Apply(t.Context(), []reservation.Command{storetest.Reserve(storetest.At("k"), 1)})
	counting := &countingStore{Store: h.Store}
	e := start(t, Options{Store: counting})
	for range 100 {
		stats, err := e.Stats(t.Context())
		if err != nil || stats.Live != 1 {
			t.Fatalf("%+v (%v)", stats, err)
		}
	}
	if n := counting.counts.Load(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
}

func TestAStoreThatIsAwayHasNoCountsAndIsNotAskedAgainAtOnce(t *testing.T) {
	counting := &countingStore{Store: storetest.OpenMem(t).Store}
	counting.away.Store(true)
	e := start(t, Options{Store: counting})
	for range 10 {
		if _, err := e.Stats(t.Context()); !refusedWith(err, reservation.StoreUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	if n := counting.counts.Load(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
}

// Lists wait for a seat, and no longer than their callers.
func TestAListEndsWithItsCallerWhileOthersRead(t *testing.T) {
	e := start(t, Options{Store: storetest.OpenMem(t).Store})
	for range seats {
		if err := e.desk.sit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.List(ctx, Listing{}); err != context.Canceled { //nolint:errorlint // as it is
		t.Errorf("got %v", err)
	}
	e.desk.rise()
	if _, err := e.List(t.Context(), Listing{}); err != nil {
		t.Error(err)
	}
}

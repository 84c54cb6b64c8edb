package storetest

import (
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// CheckSizes demands of a store that is a store.Sizer, and empty, that what its records take
// is the same in steps of any length, and of no tenant or namespace but the one asked for.
func CheckSizes(t *testing.T, s store.Store) {
	t.Helper()
	put := func(tenant, namespace, key string, body int) {
		t.Helper()
		a := reservation.Address{Tenant: tenant, Namespace: namespace, Key: key}
		for _, command := range []reservation.Command{Reserve(a, 1), Complete(a, 1, string(make([]byte, body)))} {
			if refusal, refused := s.Apply(t.Context(), []reservation.Command{command})[0].(*reservation.Error); refused {
				t.Fatal(refusal)
			}
		}
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		put("acme", "payments", key, 1000)
	}
	for _, key := range []string{"a", "z"} {
		put("acme", "mails", key, 5000)
		put("acme", "payments2", key, 1<<19)
		put("acme-2", "payments", key, 1<<19)
		put("acm", "payments", key, 1<<19)
	}
	size := func(scope store.Scope, limit int) (sum int64) {
		t.Helper()
		var after reservation.Address
		for step, more := 0, true; more; step++ {
			page, err := s.(store.Sizer).Size(t.Context(), scope, after, limit)
			if err != nil || step > 20 {
				t.Fatalf("%v, step %d: %v", scope, step, err)
			}
			sum, after, more = sum+page.Bytes, page.Last, page.More
		}
		return sum
	}
	between := func(what string, n, least, most int64) {
		t.Helper()
		if n < least || n > most {
			t.Errorf("%s takes %d bytes, want %d to %d", what, n, least, most)
		}
	}
	between("a namespace", size(store.Scope{Tenant: "acme", Namespace: "payments"}, 1000), 5000, 9000)
	between("another", size(store.Scope{Tenant: "acme", Namespace: "mails"}, 1000), 10_000, 12_000)
	between("the tenant", size(store.Scope{Tenant: "acme"}, 1000), 15_000+2<<19, 25_000+2<<19)
	between("nobody", size(store.Scope{Tenant: "ac"}, 1000), 0, 0)
	between("nothing", size(store.Scope{Tenant: "acme", Namespace: "pay"}, 1000), 0, 0)
	for _, scope := range []store.Scope{{Tenant: "acme"}, {Tenant: "acme", Namespace: "payments"}, {Tenant: "acme", Namespace: "mails"}} {
		for _, limit := range []int{1, 2, 3, 5} {
			if got, want := size(scope, limit), size(scope, 1000); got != want {
				t.Errorf("%v in steps of %d is %d, at once %d", scope, limit, got, want)
			}
		}
	}
}

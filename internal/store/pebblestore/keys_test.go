package pebblestore

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/idemd/idemd/internal/reservation"
)

// addresses draws such as lie close together: names that are prefixes of each other.
func addresses() *rapid.Generator[reservation.Address] {
	name := rapid.StringMatching(`[a-b0._-]{1,3}`)
	key := rapid.StringMatching(`[!-~]{1,3}`)
	return rapid.Custom(func(t *rapid.T) reservation.Address {
		return reservation.Address{Tenant: name.Draw(t, "tenant"), Namespace: name.Draw(t, "namespace"), Key: key.Draw(t, "key")}
	})
}

func TestKeysSortAsAddressesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := addresses().Draw(t, "a"), addresses().Draw(t, "b")
		if got, want := bytes.Compare(recordKey(a), recordKey(b)), a.Compare(b); got != want {
			t.Fatalf("keys compare %d, addresses %d", got, want)
		}
	})
}

func TestExpiryKeysSortByTimeThenAddress(t *testing.T) {
	times := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1<<62))
	rapid.Check(t, func(t *rapid.T) {
		at, bt := reservation.Time(times.Draw(t, "at")), reservation.Time(times.Draw(t, "bt"))
		a, b := addresses().Draw(t, "a"), addresses().Draw(t, "b")
		want := a.Compare(b)
		if at != bt {
			want = 1
			if at < bt {
				want = -1
			}
		}
		if got := bytes.Compare(expiryKey(at, a), expiryKey(bt, b)); got != want {
			t.Fatalf("keys compare %d, want %d", got, want)
		}
	})
}

func TestKeysReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := addresses().Draw(t, "address")
		at := reservation.Time(rapid.Int64Range(0, 1<<62).Draw(t, "time"))
		for _, key := range [][]byte{recordKey(a), openKey(a)} {
			if got, err := parseAddressKey(key); err != nil || got != a {
				t.Fatalf("read back %v, %v", got, err)
			}
		}
		if gotAt, got, err := parseTimedKey(expiryKey(at, a)); err != nil || got != a || gotAt != at {
			t.Fatalf("read back %v, %d, %v", got, gotAt, err)
		}
	})
}

func TestATenantsSpanHoldsItsAddressesAndNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := addresses().Draw(t, "a"), addresses().Draw(t, "b")
		within := func(s span, a reservation.Address) bool {
			key := recordKey(a)
			return bytes.Compare(key, s.lower) >= 0 && bytes.Compare(key, s.upper) < 0
		}
		if got, want := within(tenantSpan(prefixRecord, a.Tenant, ""), b), a.Tenant == b.Tenant; got != want {
			t.Fatalf("the span of tenant %q holds %v: %v", a.Tenant, b, got)
		}
		if got, want := within(tenantSpan(prefixRecord, a.Tenant, a.Namespace), b), a.Tenant == b.Tenant && a.Namespace == b.Namespace; got != want {
			t.Fatalf("the span of %q, %q holds %v: %v", a.Tenant, a.Namespace, b, got)
		}
	})
}

package idem

import (
	"regexp"
	"testing"
)

// The vectors were computed apart from this code: SHA-256 over "idemd-derive-v1", tenant,
// namespace ("default" if empty), key and label, each behind its length as 8 bytes, big
// endian; the first 16 bytes, as a UUID of version 8.
func TestDerivedKeysNeverChange(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for _, v := range []struct {
		address     Address
		label, want string
	}{
		{Address{"acme", "payments", "charge-42"}, "confirmation-mail", "01ae8c32-e103-8d10-b1a8-85605c296171"},
		{Address{"acme", "", "charge-42"}, "confirmation-mail", "2afbc489-6f81-8361-aa67-6a92e400987c"},
		{Address{"acme", "default", "charge-42"}, "confirmation-mail", "2afbc489-6f81-8361-aa67-6a92e400987c"},
		{Address{"", "default", "k"}, "", "0a0dab27-50cb-8b18-9fbf-2574cce73bbe"},
		{Address{"a", "b:c", "d"}, "e", "3855133b-8104-8e27-82c8-dbd6431b078c"},
		{Address{"a:b", "c", "d"}, "e", "f7993e1e-214a-8fa4-9bb7-692d17e1ae18"},
		{Address{"acme", "payments", "charge-42"}, "ä", "c1b4f278-d1dc-8acd-a3ad-6dd44f1a3f0b"},
	} {
		g := Grant{Tenant: v.address.Tenant, Namespace: v.address.Namespace, Key: v.address.Key, Attempt: 3, Fence: 9}
		u := Unresolved{Tenant: v.address.Tenant, Namespace: v.address.Namespace, Key: v.address.Key}
		if v.address.Namespace != "" && DeriveKey(v.address.Tenant, v.address.Namespace, v.address.Key, v.label) != v.want {
			t.Errorf("%v %q: the function DeriveKey says otherwise", v.address, v.label)
		}
		if got := g.DeriveKey(v.label); got != v.want || u.DeriveKey(v.label) != v.want || !uuid.MatchString(got) {
			t.Errorf("%v %q: %s, %s, want %s", v.address, v.label, got, u.DeriveKey(v.label), v.want)
		}
		seen[v.want] = true
	}
	if len(seen) != 6 { // "" and "default" are one namespace
		t.Errorf("%d different keys", len(seen))
	}
}

package reservation

import "strings"

// Filter is what records, or the acts of operators, are looked for by. Empty = any.
type Filter struct {
	Tenant, Namespace string
	Key, KeyPrefix    string
	Owner, Actor      string
	// From and To bound a time: from the one, up to, not including, the other.
	From, To Time
}

// Validate checks what is set.
func (f Filter) Validate() *Error {
	var errs []*Error
	check := func(set bool, err *Error) {
		if set {
			errs = append(errs, err)
		}
	}
	check(f.Tenant != "", checkName(TenantInvalid, "tenant", f.Tenant, MaxTenantBytes))
	check(f.Namespace != "", checkName(NamespaceInvalid, "namespace", f.Namespace, MaxNamespaceBytes))
	check(f.Key != "", checkKey(f.Key))
	check(f.KeyPrefix != "", checkPrefix(f.KeyPrefix))
	return first(append(errs,
		checkLabel("owner", f.Owner, MaxOwnerBytes),
		checkLabel("actor", f.Actor, MaxActorBytes),
		checkTime("the time after", f.From),
		checkTime("the time before", f.To),
	)...)
}

func checkPrefix(prefix string) *Error {
	if len(prefix) > MaxKeyBytes || strings.ContainsFunc(prefix, notKeyRune) {
		return Errorf(KeyInvalid, "key_prefix", "key_prefix must be at most %d bytes of printable ASCII without spaces", MaxKeyBytes)
	}
	return nil
}

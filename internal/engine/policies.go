package engine

import (
	"errors"
	"fmt"

	"github.com/idemd/idemd/internal/reservation"
)

// Scope names a namespace of a tenant, or with an empty namespace a tenant.
type Scope struct{ Tenant, Namespace string }

// String is the scope as people write it.
func (s Scope) String() string {
	if s.Namespace == "" {
		return fmt.Sprintf("tenant %q", s.Tenant)
	}
	return fmt.Sprintf("namespace %q of tenant %q", s.Namespace, s.Tenant)
}

// Policies are the policies in force. The zero value has the default policy for all. They
// are not changed once an engine has them.
type Policies struct {
	// Default holds where no other does; zero = DefaultPolicy.
	Default Policy
	// Tenants are the tenants there are; nil = every name is one.
	Tenants map[string]TenantPolicy
	// Namespaces hold for one namespace each.
	Namespaces map[Scope]Policy
	// Quotas are those of tenants (with an empty namespace, over all their namespaces
	// together) and of namespaces. Both must allow a call.
	Quotas map[Scope]Quotas
}

// TenantPolicy is what holds for the namespaces of a tenant that have no policy.
type TenantPolicy struct {
	Policy Policy
	// OnlyNamed: there are no namespaces but those with a policy.
	OnlyNamed bool
}

// For is the policy of a namespace; the refusal says that there is no such tenant, or no
// such namespace.
func (p Policies) For(tenant, namespace string) (Policy, *reservation.Error) {
	if policy, ok := p.Namespaces[Scope{tenant, namespace}]; ok {
		return policy, nil
	}
	if p.Tenants == nil {
		if p.Default == (Policy{}) {
			return DefaultPolicy(), nil
		}
		return p.Default, nil
	}
	of, ok := p.Tenants[tenant]
	switch {
	case !ok:
		return Policy{}, reservation.Errorf(reservation.TenantForbidden, "tenant", "tenant is not one of those served here")
	case of.OnlyNamed:
		return Policy{}, reservation.Errorf(reservation.NamespaceInvalid, "namespace",
			"namespace is none of this tenant's, which are configured by name")
	}
	return of.Policy, nil
}

// Validate checks every policy.
func (p Policies) Validate() error {
	var errs []error
	check := func(where string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	if p.Default != (Policy{}) {
		check("default policy", p.Default.Validate())
	}
	for tenant, of := range p.Tenants {
		check(Scope{Tenant: tenant}.String(), of.Policy.Validate())
	}
	for scope, policy := range p.Namespaces {
		check(scope.String(), policy.Validate())
	}
	for scope, quotas := range p.Quotas {
		check(scope.String(), quotas.Validate())
	}
	return errors.Join(errs...)
}

package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/idemd/idemd/internal/reservation"
)

// Roles is a set of roles.
type Roles uint8

// The roles.
const (
	// Caller may call IdempotencyService.
	Caller Roles = 1 << iota
	// Resolver may Lookup and Resolve, without breaking a lease.
	Resolver
	// Operator may call all of OperatorService, Lookup, and break leases.
	Operator
	// Metrics may read /metrics.
	Metrics
)

// RoleNames are the names of the roles, as configurations and claims give them.
func RoleNames() []string { return []string{"caller", "resolver", "operator", "metrics"} }

// ParseRole is the role of a name.
func ParseRole(name string) (Roles, bool) {
	i := slices.Index(RoleNames(), name)
	if i < 0 {
		return 0, false
	}
	return 1 << i, true
}

// Any tells whether two sets have a role in common.
func (r Roles) Any(of Roles) bool { return r&of != 0 }

// Names are the names of the roles in the set.
func (r Roles) Names() []string {
	var names []string
	for i, name := range RoleNames() {
		if r.Any(1 << i) {
			names = append(names, name)
		}
	}
	return names
}

// Identity is who calls. It is not changed once it is made.
type Identity struct {
	// Name stands in histories and in the audit as the actor.
	Name  string
	Roles Roles
	// Tenants are those that the identity may act for; with AllTenants all.
	Tenants    []string
	AllTenants bool
}

// Anyone is who calls where nobody is asked who they are.
func Anyone() *Identity {
	return &Identity{Name: "anonymous", Roles: Caller | Resolver | Operator | Metrics, AllTenants: true}
}

// Tenant is the tenant that a call is about: the one it names, or the only one there
// is where it names none. A tenant of others is refused with TENANT_FORBIDDEN whether
// there is such a one or not, so that nobody learns which there are.
func (i *Identity) Tenant(named string) (string, *reservation.Error) {
	switch {
	case named == "" && len(i.Tenants) == 1 && !i.AllTenants:
		return i.Tenants[0], nil
	case named == "":
		return "", reservation.Errorf(reservation.TenantInvalid, "tenant",
			"tenant is missing, and only an identity with exactly one may leave it out")
	case i.AllTenants || slices.Contains(i.Tenants, named):
		return named, nil
	}
	return "", reservation.Errorf(reservation.TenantForbidden, "tenant", "tenant is not one of this identity's")
}

// Require demands one of some roles.
func (i *Identity) Require(oneOf Roles) *reservation.Error {
	if i.Roles.Any(oneOf) {
		return nil
	}
	return reservation.Errorf(reservation.RoleRequired, "", "this needs the role %s, which the identity has not",
		strings.Join(oneOf.Names(), " or "))
}

// equal tells whether two proofs are of the same identity.
func (i *Identity) equal(other *Identity) bool {
	return i.Name == other.Name && i.Roles == other.Roles && i.AllTenants == other.AllTenants &&
		slices.Equal(i.Tenants, other.Tenants)
}

func refuse(format string, args ...any) *reservation.Error {
	return reservation.Errorf(reservation.Unauthenticated, "", "%s", fmt.Sprintf(format, args...))
}

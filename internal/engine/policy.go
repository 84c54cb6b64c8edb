package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// Policy is what holds for the reservations of one namespace: what a call gets that
// does not say, and how far it may go.
type Policy struct {
	Lease    time.Duration // default of Reserve and Extend
	MaxLease time.Duration
	LeaseCap time.Duration // what Extend can reach, counted from the grant

	Retention    time.Duration // default of Reserve
	MaxRetention time.Duration

	OnLapse  reservation.LapsePolicy // default of Reserve
	Attempts int32                   // allowed in all
}

// DefaultPolicy is the policy of the design: an owner that falls silent may have
// done the work.
func DefaultPolicy() Policy {
	return Policy{
		Lease: reservation.DefaultLease, MaxLease: reservation.MaxLease, LeaseCap: reservation.DefaultLeaseCap,
		Retention: reservation.DefaultRetention, MaxRetention: reservation.MaxRetention,
		OnLapse: reservation.Hold, Attempts: reservation.DefaultAttempts,
	}
}

// Validate tells everything that is wrong with the policy.
func (p Policy) Validate() error {
	var errs []error
	demand := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	demand(p.MaxLease >= reservation.MinLease && p.MaxLease <= reservation.MaxLease,
		"max lease must be from %v to %v", reservation.MinLease, reservation.MaxLease)
	demand(p.Lease >= reservation.MinLease && p.Lease <= p.MaxLease,
		"lease must be from %v to the max lease", reservation.MinLease)
	demand(p.LeaseCap >= p.MaxLease && p.LeaseCap <= reservation.DefaultLeaseCap,
		"lease cap must be from the max lease to %v", reservation.DefaultLeaseCap)
	demand(p.MaxRetention >= reservation.MinRetention && p.MaxRetention <= reservation.MaxRetention,
		"max retention must be from %v to %v", reservation.MinRetention, reservation.MaxRetention)
	demand(p.Retention >= reservation.MinRetention && p.Retention <= p.MaxRetention,
		"retention must be from %v to the max retention", reservation.MinRetention)
	demand(p.OnLapse == reservation.Hold || p.OnLapse == reservation.Rerun, "on lapse must be HOLD or RERUN")
	demand(p.Attempts >= 1 && p.Attempts <= reservation.MaxAttempts,
		"attempts must be from 1 to %d", reservation.MaxAttempts)
	return errors.Join(errs...)
}

// Scope names a namespace of a tenant.
type Scope struct{ Tenant, Namespace string }

// Policies are the policies in force. The zero value has the default policy for all.
type Policies struct {
	// Default holds where no other does; zero = DefaultPolicy.
	Default    Policy
	Namespaces map[Scope]Policy
}

// For is the policy of a namespace.
func (p Policies) For(tenant, namespace string) Policy {
	if policy, ok := p.Namespaces[Scope{tenant, namespace}]; ok {
		return policy
	}
	if p.Default == (Policy{}) {
		return DefaultPolicy()
	}
	return p.Default
}

// Validate checks every policy.
func (p Policies) Validate() error {
	errs := []error{p.For("", "").Validate()}
	for scope, policy := range p.Namespaces {
		if err := policy.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("tenant %q, namespace %q: %w", scope.Tenant, scope.Namespace, err))
		}
	}
	return errors.Join(errs...)
}

// complete fills in what a call left to its namespace's policy and refuses what the
// policy does not allow.
func (p Policies) complete(command reservation.Command) *reservation.Error {
	address := command.Target()
	policy := p.For(address.Tenant, address.Namespace)
	switch c := command.(type) {
	case *reservation.Reserve:
		policy.completeReserve(c)
		return firstError(
			atMost("lease", c.Lease, policy.MaxLease),
			atMost("retention", c.Retention, policy.MaxRetention))
	case *reservation.Extend:
		if c.Lease == 0 {
			c.Lease = policy.Lease
		}
		return atMost("lease", c.Lease, policy.MaxLease)
	case *reservation.Complete:
		return atMost("retention", c.Retention, policy.MaxRetention)
	case *reservation.Fail:
		return atMost("retention", c.Retention, policy.MaxRetention)
	}
	return nil
}

func (p Policy) completeReserve(c *reservation.Reserve) {
	if c.Lease == 0 {
		c.Lease = p.Lease
	}
	if c.Retention == 0 {
		c.Retention = p.Retention
	}
	if c.OnLapse == 0 {
		c.OnLapse = p.OnLapse
	}
	c.LeaseCap, c.Attempts = p.LeaseCap, p.Attempts
}

func atMost(field string, d, most time.Duration) *reservation.Error {
	if d > most {
		return reservation.Errorf(reservation.DurationOutOfRange, field,
			"%s must be at most %v in this namespace", field, most)
	}
	return nil
}

func firstError(errs ...*reservation.Error) *reservation.Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

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
	// ResultRetention is how long a result's body is replayed, counted from the finish:
	// from then on it is omitted. Zero = as long as the record.
	ResultRetention time.Duration
	// OmitBodies: bodies are not stored at all.
	OmitBodies bool

	OnLapse  reservation.LapsePolicy // default of Reserve
	NoRerun  bool                    // a Reserve that asks for RERUN is refused
	Attempts int32                   // allowed in all

	MaxBodyBytes       int
	MaxCheckpointBytes int

	// Settle is how long after an operation became unresolved a verdict may say that it
	// was not executed: an owner that was only slow has acted by then.
	Settle time.Duration
}

// MaxSettle bounds a policy's settle time.
const MaxSettle = 7 * 24 * time.Hour

// DefaultPolicy is the policy of the design: an owner that falls silent may have
// done the work.
func DefaultPolicy() Policy {
	return Policy{
		Lease: reservation.DefaultLease, MaxLease: reservation.MaxLease, LeaseCap: reservation.DefaultLeaseCap,
		Retention: reservation.DefaultRetention, MaxRetention: reservation.MaxRetention,
		OnLapse: reservation.Hold, Attempts: reservation.DefaultAttempts,
		MaxBodyBytes: reservation.MaxBodyBytes, MaxCheckpointBytes: reservation.MaxCheckpointBytes,
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
		"max_lease must be from %v to %v", reservation.MinLease, reservation.MaxLease)
	demand(p.Lease >= reservation.MinLease && p.Lease <= p.MaxLease,
		"lease must be from %v to max_lease, which is %v", reservation.MinLease, p.MaxLease)
	demand(p.LeaseCap >= p.MaxLease && p.LeaseCap <= reservation.DefaultLeaseCap,
		"lease_cap must be from max_lease, which is %v, to %v", p.MaxLease, reservation.DefaultLeaseCap)
	demand(p.MaxRetention >= reservation.MinRetention && p.MaxRetention <= reservation.MaxRetention,
		"max_retention must be from %v to %v", reservation.MinRetention, reservation.MaxRetention)
	demand(p.Retention >= reservation.MinRetention && p.Retention <= p.MaxRetention,
		"retention must be from %v to max_retention, which is %v", reservation.MinRetention, p.MaxRetention)
	demand(p.ResultRetention == 0 || p.ResultRetention >= reservation.MinRetention && p.ResultRetention <= reservation.MaxRetention,
		"result_retention must be from %v to %v", reservation.MinRetention, reservation.MaxRetention)
	demand(p.OnLapse == reservation.Hold || p.OnLapse == reservation.Rerun, "on_lapse must be hold or rerun")
	demand(p.OnLapse == reservation.Hold || !p.NoRerun, "on_lapse is rerun, but allow_rerun is false")
	demand(p.Attempts >= 1 && p.Attempts <= reservation.MaxAttempts,
		"attempts must be from 1 to %d", reservation.MaxAttempts)
	demand(p.MaxBodyBytes >= 0 && p.MaxBodyBytes <= reservation.MaxBodyBytes,
		"max_body_bytes must be from 0 to %d", reservation.MaxBodyBytes)
	demand(p.MaxCheckpointBytes >= 0 && p.MaxCheckpointBytes <= reservation.MaxCheckpointBytes,
		"max_checkpoint_bytes must be from 0 to %d", reservation.MaxCheckpointBytes)
	demand(p.Settle >= 0 && p.Settle <= MaxSettle, "settle must be from 0 to %v", MaxSettle)
	return errors.Join(errs...)
}

// complete fills in what a call left to its namespace's policy and refuses what the
// policy does not allow.
func (p *Policy) complete(command reservation.Command) *reservation.Error {
	switch c := command.(type) {
	case *reservation.Reserve:
		p.completeReserve(c)
		return firstError(
			atMost("lease", c.Lease, p.MaxLease),
			atMost("retention", c.Retention, p.MaxRetention),
			p.allowLapse(c.OnLapse))
	case *reservation.Extend:
		if c.Lease == 0 {
			c.Lease = p.Lease
		}
		return firstError(atMost("lease", c.Lease, p.MaxLease), p.allowCheckpoint(c.Checkpoint))
	case *reservation.Complete:
		c.BodyRetention, c.DropBody = p.ResultRetention, p.OmitBodies
		return firstError(atMost("retention", c.Retention, p.MaxRetention), p.allowBody(&c.Result))
	case *reservation.Fail:
		c.BodyRetention, c.DropBody = p.ResultRetention, p.OmitBodies
		return firstError(atMost("retention", c.Retention, p.MaxRetention), p.allowBody(&c.Result))
	case *reservation.Resolve:
		c.BodyRetention, c.DropBody = p.ResultRetention, p.OmitBodies
		return p.allowBody(c.Result)
	}
	return nil
}

func (p *Policy) completeReserve(c *reservation.Reserve) {
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

func (p *Policy) allowLapse(onLapse reservation.LapsePolicy) *reservation.Error {
	if p.NoRerun && onLapse == reservation.Rerun {
		return reservation.Errorf(reservation.EnumInvalid, "on_lapse", "on_lapse must be HOLD in this namespace")
	}
	return nil
}

func (p *Policy) allowCheckpoint(checkpoint []byte) *reservation.Error {
	if len(checkpoint) > p.MaxCheckpointBytes {
		return reservation.Errorf(reservation.CheckpointInvalid, "checkpoint",
			"checkpoint must be at most %d bytes in this namespace", p.MaxCheckpointBytes)
	}
	return nil
}

// allowBody goes by what would be stored. What is over every limit is for validation to
// refuse.
func (p *Policy) allowBody(r *reservation.Result) *reservation.Error {
	if r == nil || p.OmitBodies || len(r.Body) <= p.MaxBodyBytes || len(r.Body) > reservation.MaxBodyBytes {
		return nil
	}
	return reservation.Errorf(reservation.ResultTooLarge, "result.body",
		"result.body has %d bytes, at most %d are kept in this namespace; complete with body_omitted instead: the operation is done and must not run again",
		len(r.Body), p.MaxBodyBytes)
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

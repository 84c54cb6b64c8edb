package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// reserveEdits names what may be unusual about a Reserve.
func reserveEdits() []string {
	return []string{
		"rerun", "rerun when lapsed", "another operation", "short lease", "odd lease", "short cap", "short retention", "odd retention",
		"one attempt", "two attempts", "first tried now", "first tried long ago",
	}
}

// edit makes a Reserve unusual.
func edit(c *reservation.Reserve, name string, now reservation.Time) {
	switch name {
	case "rerun", "rerun when lapsed":
		Rerunnable(c)
	case "another operation":
		c.Fingerprint = Print(2)
	case "short lease":
		c.Lease = reservation.MinLease
	case "odd lease":
		c.Lease = reservation.MinLease + 1234567*time.Nanosecond
	case "short cap":
		c.LeaseCap = time.Minute
	case "short retention":
		c.Retention = reservation.MinRetention
	case "odd retention":
		c.Retention = reservation.MinRetention + time.Nanosecond
	case "one attempt":
		c.Attempts = 1
	case "two attempts":
		c.Attempts = 2
	case "first tried now":
		c.FirstAttemptAt = now
	case "first tried long ago":
		c.FirstAttemptAt = now.Add(-2 * Retention)
	}
}

// command makes the command of an order, for the record that the reference holds.
func (o order) command(address reservation.Address, now reservation.Time, rec *reservation.Record) reservation.Command {
	switch o.kind {
	case orderReserve:
		c := Reserve(address, o.caller)
		c.PolicyVersion = fmt.Sprintf("policy-%d", o.variant)
		if o.variant > 1 {
			c.Trace = Trace(o.variant)
		}
		for _, name := range o.edits {
			edit(c, name, now)
		}
		return c
	case orderExtend:
		c := Extend(address, o.caller)
		c.Lease = o.duration
		c.CheckpointSequence = []uint64{0, 1, 2, 1 << 63, 2, 3}[o.variant]
		if o.variant != 4 {
			c.Checkpoint = []byte(fmt.Sprintf("checkpoint %d\x00", o.variant))
		}
		return c
	case orderComplete:
		c := &reservation.Complete{
			Address: address, Token: Token(o.caller), Result: o.result(),
			BodyRetention: o.bodies.retention(), DropBody: o.bodies == dropBodies,
		}
		if o.variant == 3 {
			c.Retention = 2 * Retention
		}
		return c
	case orderFail:
		return &reservation.Fail{
			Address: address, Token: Token(o.caller), Result: o.result(), RetryAfter: o.retryAfter(rec),
			Kind:          []reservation.OutcomeKind{reservation.ToldRetryable, reservation.ToldFinal, reservation.ToldUnknown}[o.variant%3],
			BodyRetention: o.bodies.retention(), DropBody: o.bodies == dropBodies,
		}
	case orderResolve:
		return o.resolve(address, rec)
	case orderErase:
		c := &reservation.Erase{Address: address, Actor: "olga", Reason: "asked to"}
		if rec != nil && o.variant > 2 {
			c.ExpectedVersion = rec.Version + o.version
		}
		return c
	}
	return Lookup(address)
}

// retryAfter must be shorter than the record's retention: otherwise it is refused, which
// is worth no more than a try now and then.
func (o order) retryAfter(rec *reservation.Record) time.Duration {
	if rec != nil && o.duration >= rec.Retention && o.variant > 0 {
		return rec.Retention - time.Microsecond
	}
	return o.duration
}

func (o order) resolve(address reservation.Address, rec *reservation.Record) *reservation.Resolve {
	version := 1 + o.version + 1 // where there is no record, anything positive
	if rec != nil {
		version = rec.Version + o.version
	}
	verdict := []reservation.Verdict{
		reservation.VerdictNotExecuted, reservation.VerdictSucceeded, reservation.VerdictFailedFinal,
	}[o.variant%3]
	c := Resolve(address, max(1, version), verdict, fmt.Sprintf("verdict %d", o.variant))
	c.BreakLease = o.variant >= 3
	c.BodyRetention, c.DropBody = o.bodies.retention(), o.bodies == dropBodies
	return c
}

// result is one of few, so that repeats are told: empty, small, or beyond what a page or
// a text column would keep.
func (o order) result() reservation.Result {
	switch o.variant {
	case 0:
		return reservation.Result{}
	case 5:
		return Answer(strings.Repeat("large ", 12<<10))
	}
	return Answer(fmt.Sprintf("answer %d", o.variant%2))
}

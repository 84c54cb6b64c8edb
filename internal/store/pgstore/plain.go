package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// The plain path is most of the traffic: a Reserve of a new key, and the Complete of an
// attempt under way. Each of the two is one statement that carries its whole condition,
// so that a batch of them is one transaction in one round trip, without reading rows
// first. Whatever does not meet the condition, or is held by a rival, is left as it is
// and goes the way of everything else: read, decide, write.
//
// Law 2 allows such a path where it is proven equal to Decide: the conformance suite
// and the model test run it, and Decide itself makes the outcome of a Reserve.

// plain is the plain part of a batch.
type plain struct {
	store *Store
	batch *batch

	reserves  plainReserves
	completes plainCompletes
}

// applyPlain runs what is plain and returns the groups that are left to run.
func (a *application) applyPlain(ctx context.Context, groups []store.Group) (rest []store.Group) {
	p := &plain{store: a.store, batch: a.batch}
	for _, group := range groups {
		if !p.takes(group) {
			rest = append(rest, group)
		}
	}
	if len(p.reserves.groups)+len(p.completes.groups) == 0 {
		return rest
	}
	err := a.store.on(ctx, a.store.pool, func(work context.Context, conn *pgx.Conn) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return p.run(work, conn)
	})
	if err != nil {
		// Nothing was done, or nobody knows: the long way finds out and repeats it with
		// the same tokens.
		return groups
	}
	return append(rest, p.left()...)
}

// takes notes a group that is plain: one Reserve or one Complete.
func (p *plain) takes(group store.Group) bool {
	if len(group.Indexes) != 1 {
		return false
	}
	switch c := p.batch.commands[group.Indexes[0]].(type) {
	case *reservation.Reserve:
		p.reserves.add(group, c)
	case *reservation.Complete:
		p.completes.add(group, c)
	default:
		return false
	}
	return true
}

// run is the whole transaction, in one round trip. Completes come first: they wait for
// nobody. A Reserve may wait for a rival that inserts the same key: if that takes long,
// the time it goes by has passed, and the transaction fails.
func (p *plain) run(ctx context.Context, conn *pgx.Conn) error {
	batch := p.store.beginning()
	if len(p.completes.groups) > 0 {
		batch.Queue(p.completes.statement(p.store.statements), p.completes.arguments()...).Query(p.completes.collect)
	}
	if n := len(p.reserves.groups); n > 0 {
		batch.Queue(p.reserves.statement(p.store.statements), p.reserves.arguments()...).Query(p.reserves.collect)
		batch.Queue(p.store.statements.demandPlain, tolerated(n).Microseconds())
	}
	batch.Queue("COMMIT").Exec(demandCommitted)
	return p.store.finish(ctx, conn, conn.SendBatch(ctx, batch).Close())
}

// left answers what was written and returns the groups of which nothing was.
func (p *plain) left() (groups []store.Group) {
	for i, group := range p.reserves.groups {
		if p.reserves.written[i] {
			command := p.batch.commands[group.Indexes[0]]
			_, outcome := reservation.Decide(p.reserves.now, nil, command)
			group.Answer(outcome, p.batch.outcomes)
		} else {
			groups = append(groups, group)
		}
	}
	for i, group := range p.completes.groups {
		if recorded := p.completes.recorded[i]; recorded != nil {
			group.Answer(recorded, p.batch.outcomes)
		} else {
			groups = append(groups, group)
		}
	}
	return groups
}

// plainReserves are Reserves as columns.
type plainReserves struct {
	groups                                 []store.Group
	tenant, namespace, key                 []string
	retention, lease, leaseCap, firstTried []int64
	attempts                               []int32
	onLapse                                []int16
	scheme, owner, policyVersion           []string
	digest, token                          [][]byte
	trace                                  [][]byte
	traced                                 bool // some are

	written []bool
	now     reservation.Time
}

func (r *plainReserves) add(group store.Group, c *reservation.Reserve) {
	token := c.Token.Digest()
	r.groups = append(r.groups, group)
	r.tenant = append(r.tenant, c.Tenant)
	r.namespace = append(r.namespace, c.Namespace)
	r.key = append(r.key, c.Key)
	r.retention = append(r.retention, micros(c.Retention))
	r.lease = append(r.lease, micros(c.Lease))
	r.leaseCap = append(r.leaseCap, micros(c.LeaseCap))
	r.firstTried = append(r.firstTried, int64(c.FirstAttemptAt))
	r.attempts = append(r.attempts, c.Attempts)
	r.onLapse = append(r.onLapse, int16(c.OnLapse))
	r.scheme = append(r.scheme, c.Fingerprint.Scheme)
	r.owner = append(r.owner, c.Owner)
	r.policyVersion = append(r.policyVersion, c.PolicyVersion)
	r.digest = append(r.digest, c.Fingerprint.Digest)
	r.token = append(r.token, token[:])
	if c.Trace == (reservation.TraceContext{}) {
		r.trace = append(r.trace, nil)
	} else {
		r.trace, r.traced = append(r.trace, c.Trace[:]), true
	}
}

func (r *plainReserves) statement(s statements) string {
	if r.traced {
		return s.tracedReserve
	}
	return s.plainReserve
}

func (r *plainReserves) arguments() []any {
	arguments := []any{
		r.tenant, r.namespace, r.key, r.retention, r.lease, r.leaseCap, r.firstTried, r.attempts, r.onLapse,
		r.scheme, r.owner, r.policyVersion, r.digest, r.token, reservation.MaxClockAhead.Microseconds(),
	}
	if r.traced {
		arguments = append(arguments, r.trace)
	}
	return arguments
}

// collect notes what was inserted. Rows come back in the order they were given.
func (r *plainReserves) collect(rows pgx.Rows) error {
	r.written = make([]bool, len(r.groups))
	var address reservation.Address
	targets := []any{&address.Tenant, &address.Namespace, &address.Key, (*int64)(&r.now)}
	for i := 0; rows.Next(); i++ {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		for i < len(r.groups) && r.groups[i].Address != address {
			i++
		}
		if i < len(r.groups) {
			r.written[i] = true
		}
	}
	return rows.Err()
}

// plainCompletes are Completes as columns.
type plainCompletes struct {
	groups                 []store.Group
	tenant, namespace, key []string
	token, result          [][]byte
	retention              []int64
	body                   []int64 // how long it is shown
	ageing                 bool    // some go before their records

	recorded []*reservation.Recorded
}

func (c *plainCompletes) add(group store.Group, command *reservation.Complete) {
	token, result := command.Token.Digest(), command.Kept()
	c.groups = append(c.groups, group)
	c.tenant = append(c.tenant, command.Tenant)
	c.namespace = append(c.namespace, command.Namespace)
	c.key = append(c.key, command.Key)
	c.token = append(c.token, token[:])
	c.result = append(c.result, codec.EncodeResult(result))
	c.retention = append(c.retention, micros(command.Retention))
	c.body = append(c.body, micros(result.BodyRetention))
	c.ageing = c.ageing || result.BodyRetention > 0
}

func (c *plainCompletes) statement(s statements) string {
	if c.ageing {
		return s.ageingComplete
	}
	return s.plainComplete
}

func (c *plainCompletes) arguments() []any {
	arguments := []any{c.tenant, c.namespace, c.key, c.token, c.result, c.retention}
	if c.ageing {
		arguments = append(arguments, c.body)
	}
	return arguments
}

func (c *plainCompletes) collect(rows pgx.Rows) error {
	c.recorded = make([]*reservation.Recorded, len(c.groups))
	var place int64
	for rows.Next() {
		recorded := &reservation.Recorded{State: reservation.Succeeded}
		if err := rows.Scan(&place, &recorded.Version, (*int64)(&recorded.ExpiresAt)); err != nil {
			return err
		}
		c.recorded[place-1] = recorded
	}
	return rows.Err()
}

// micros is a duration as it is stored: whole microseconds, rounded up.
func micros(d time.Duration) int64 { return int64(reservation.Time(0).Add(d)) }

package pgstore

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// transaction applies some groups of a batch.
type transaction struct {
	store  *Store
	conn   *pgx.Conn
	batch  *batch
	groups []store.Group

	found []found // of each group
	now   reservation.Time
}

// found is what lies at an address.
type found struct {
	exists, held bool
	revision     int64
	record       *reservation.Record
	damage       error // the row can't be decoded
}

// run is the whole transaction, in two round trips. It returns the groups that have
// to be run again because a rival was first. An outcome counts only if there is no
// error.
func (t *transaction) run(ctx context.Context, wanted func() error, tolerance time.Duration) (again []store.Group, err error) {
	if err := t.hold(ctx); err != nil {
		return nil, err
	}
	inserts, updates := t.decide()
	if err := wanted(); err != nil || len(inserts.places)+len(updates.places) == 0 {
		if err == nil && t.repeats() {
			return nil, t.barrier(ctx)
		}
		// Nothing to keep: an abort costs no flush.
		_, _ = t.conn.Exec(ctx, "ROLLBACK")
		return nil, err
	}
	if err := t.write(ctx, &inserts, &updates, tolerance); err != nil {
		return nil, err
	}
	return append(t.unwritten(&inserts), t.unwritten(&updates)...), nil
}

// beginning starts every transaction.
func (s *Store) beginning() *pgx.Batch {
	batch := new(pgx.Batch)
	batch.Queue(s.statements.begin)
	batch.Queue(s.statements.settings, millis(s.options.LockTimeout), millis(stallTimeout), millis(s.options.StatementTimeout))
	return batch
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// finish ends a transaction that failed, so that the connection can be used again.
func (s *Store) finish(ctx context.Context, conn *pgx.Conn, err error) error {
	if err == nil {
		err = demandReplicated(conn)
	}
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
	return err
}

// hold locks the rows of all groups that may change one, reads the clock, then reads
// the rows of the others. The order matters:
//
// Law 4 wants the time read after a row is held. And what is read without a lock is
// read after the clock: then whatever the time says has come (a lapse, an expiry) had
// come when the row was read.
func (t *transaction) hold(ctx context.Context) error {
	t.found = make([]found, len(t.groups))
	writers, readers := t.parted()
	batch := t.store.beginning()
	if len(writers.key) > 0 {
		batch.Queue(t.store.statements.hold, writers.tenant, writers.namespace, writers.key).Query(t.collect(writers))
	}
	batch.Queue(t.store.statements.clock).QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&t.now)) })
	if len(readers.key) > 0 {
		batch.Queue(t.store.statements.read, readers.tenant, readers.namespace, readers.key).Query(t.collect(readers))
	}
	return t.store.finish(ctx, t.conn, t.conn.SendBatch(ctx, batch).Close())
}

// addresses are asked for together; places says of which group each is.
type addresses struct {
	tenant, namespace, key []string
	places                 []int
}

func (a *addresses) add(place int, address reservation.Address) {
	a.places = append(a.places, place)
	a.tenant = append(a.tenant, address.Tenant)
	a.namespace = append(a.namespace, address.Namespace)
	a.key = append(a.key, address.Key)
}

func (t *transaction) parted() (writers, readers *addresses) {
	writers, readers = new(addresses), new(addresses)
	for place, group := range t.groups {
		if t.batch.onlyReads(group) {
			readers.add(place, group.Address)
		} else {
			writers.add(place, group.Address)
		}
	}
	return writers, readers
}

func (t *transaction) collect(asked *addresses) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		return scanFound(rows, func(i int, f found) { t.found[asked.places[i]] = f })
	}
}

// scanFound reads the answer to a hold or read statement.
func scanFound(rows pgx.Rows, each func(place int, f found)) error {
	var place int64
	var r row
	f := found{exists: true}
	targets := append([]any{&place, &f.held}, r.targets()...)
	for rows.Next() {
		r = row{}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		f.record, f.damage, f.revision = nil, nil, r.revision
		if f.held {
			f.record, f.damage = r.decode()
		}
		if f.damage != nil {
			f.record = nil
		}
		each(int(place-1), f)
	}
	return rows.Err()
}

// changes are the rows that groups want written.
type changes struct {
	rows
	places  []int // of which group each row is
	written []bool
	acts    acts // of operators, that are kept with these rows
}

func (c *changes) add(place int, address reservation.Address, revision int64, rec *reservation.Record) {
	c.places = append(c.places, place)
	c.rows.add(address, revision, rec)
}

// decide runs all commands. What can't be run is answered: a rival holds the row, or
// it can't be decoded.
func (t *transaction) decide() (inserts, updates changes) {
	for place, group := range t.groups {
		f := t.found[place]
		switch {
		case f.exists && !f.held:
			group.Answer(store.Busy(), t.batch.outcomes)
			continue
		case f.damage != nil:
			group.Answer(store.Unreadable(), t.batch.outcomes)
			continue
		}
		next, kept := group.Fold(t.now, f.record, t.batch.commands, t.batch.outcomes)
		switch {
		case next == f.record:
		case f.exists:
			updates.add(place, group.Address, f.revision+1, next)
			updates.acts.add(kept)
		default:
			inserts.add(place, group.Address, 1, next)
			inserts.acts.add(kept)
		}
	}
	return inserts, updates
}

// write stores the changes and commits. What can wait comes first, which is inserts and
// whoever keeps the act of an operator: after it the database checks that the time decided
// with is not too long ago, so that no lease is granted that has run for a while already.
func (t *transaction) write(ctx context.Context, inserts, updates *changes, tolerance time.Duration) error {
	batch, s := new(pgx.Batch), &t.store.statements
	waits := inserts.len() > 0
	if inserts.acts.len() > 0 {
		batch.Queue(s.holdAudit)
	}
	t.queue(batch, inserts, s.insert, s.auditedInsert)
	if updates.acts.len() > 0 {
		batch.Queue(s.holdAudit)
		waits = true
	}
	if waits {
		batch.Queue(s.demandRecent, int64(t.now), tolerance.Microseconds())
	}
	t.queue(batch, updates, s.update, s.auditedUpdate)
	batch.Queue("COMMIT").Exec(demandCommitted)
	return t.store.finish(ctx, t.conn, t.conn.SendBatch(ctx, batch).Close())
}

// queue has changes written, and the acts of operators with them.
func (t *transaction) queue(batch *pgx.Batch, c *changes, plain, audited string) {
	switch {
	case c.len() == 0:
	case c.acts.len() == 0:
		batch.Queue(plain, c.arguments()...).Query(t.confirm(c))
	default:
		batch.Queue(audited, append(c.arguments(), c.acts.arguments()...)...).Query(t.confirm(c))
	}
}

// demandCommitted refuses the answer of a COMMIT that rolled back, which PostgreSQL
// does not call an error.
func demandCommitted(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return errNotCommitted
	}
	return nil
}

// confirm notes which rows were written. They come back in the order they were given.
func (t *transaction) confirm(c *changes) func(pgx.Rows) error {
	c.written = make([]bool, len(c.places))
	return func(rows pgx.Rows) error {
		var address reservation.Address
		targets := []any{&address.Tenant, &address.Namespace, &address.Key}
		for i := 0; rows.Next(); i++ {
			if err := rows.Scan(targets...); err != nil {
				return err
			}
			for i < len(c.places) && t.groups[c.places[i]].Address != address {
				i++
			}
			if i < len(c.places) {
				c.written[i] = true
			}
		}
		return rows.Err()
	}
}

func (t *transaction) unwritten(c *changes) (groups []store.Group) {
	for i, place := range c.places {
		if !c.written[i] {
			groups = append(groups, t.groups[place])
		}
	}
	return groups
}

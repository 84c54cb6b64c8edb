package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/messaging/internal/outboxtable"
)

// takeAggregates claims events of aggregates that no other relay works on, of each those at
// its front. It goes over all aggregates in passes: each call goes on where the last one
// stopped, so that a call's cost does not grow with what is held back. A pass ends at the
// aggregate that was the last one when it began: names are often made in their order, and
// there may always be new ones.
//
// The first statement locks aggregates; the second one, with a snapshot of its own, sees all
// that another relay has done with them before it let go of the lock.
func (s *store) takeAggregates(ctx context.Context, c *claimed, limit int) error {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// A relay that stalls in here would hold what it has locked beyond its claim.
	idle := min(s.claim, databaseTimeout).Milliseconds()
	if _, err := tx.Exec(ctx, `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, strconv.FormatInt(idle, 10)); err != nil {
		return err
	}
	mine, last, end, err := s.lockAggregates(ctx, tx, max(limit, leastAggregates))
	if err != nil {
		return err
	}
	if len(mine) > 0 {
		if err := s.takeFronts(ctx, tx, c, mine, limit); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	full := len(c.events)+len(c.lost) >= limit || c.bytes() >= mostBytes
	s.found = s.found || len(c.events) > 0
	switch {
	case full:
		c.more, s.after = true, c.reached(mine, s.after)
	case !end:
		c.more, s.after = true, last
	default:
		c.more, s.after, s.found = s.found, aggregate{}, false
	}
	return nil
}

// leastAggregates are looked at in one call, also where few events are wanted: the first
// ones may be held back.
const leastAggregates = 100

// lockAggregates locks up to n aggregates behind s.after whose first event is free. It tells the
// last one that it has looked at, and whether there are none behind it.
func (s *store) lockAggregates(ctx context.Context, tx pgx.Tx, n int) (mine []aggregate, last aggregate, end bool, err error) {
	// A walk along the index, one step for each aggregate, however many events it has.
	first := fmt.Sprintf(`SELECT aggregatetype, aggregateid, %s AS free FROM %s
		WHERE state = %d AND (aggregatetype, aggregateid) <= ($4, $5) AND (aggregatetype, aggregateid) > `, free, s.table, outboxtable.Pending)
	const order = ` ORDER BY aggregatetype, aggregateid, position LIMIT 1`
	batch := &pgx.Batch{}
	batch.Queue(steadyPlan)
	if s.after == (aggregate{}) {
		s.queueLast(batch)
		if err := tx.SendBatch(ctx, batch).Close(); err != nil {
			return nil, last, false, err
		}
		batch = &pgx.Batch{}
	}
	seen := 0
	batch.Queue(`WITH RECURSIVE walk AS (
			(`+first+`($1, $2)`+order+`)
			UNION ALL
			SELECT next.* FROM walk, LATERAL (`+first+`(walk.aggregatetype, walk.aggregateid)`+order+`) AS next),
		heads AS MATERIALIZED (SELECT * FROM walk LIMIT $3)
		SELECT aggregatetype, aggregateid, CASE WHEN free THEN pg_try_advisory_xact_lock(`+s.table.RelayLock("aggregatetype", "aggregateid")+`) ELSE false END
		FROM heads`, s.after.kind, s.after.id, n, s.last.kind, s.last.id).Query(func(rows pgx.Rows) error {
		var locked bool
		_, err := pgx.ForEachRow(rows, []any{&last.kind, &last.id, &locked}, func() error {
			if seen++; locked {
				mine = append(mine, last)
			}
			return nil
		})
		return err
	})
	err = tx.SendBatch(ctx, batch).Close()
	return mine, last, seen < n, err
}

// queueLast asks for s.last, which is zero where nothing is pending.
func (s *store) queueLast(batch *pgx.Batch) {
	s.last = aggregate{}
	batch.Queue(fmt.Sprintf(`SELECT aggregatetype, aggregateid FROM %s WHERE state = %d
		ORDER BY aggregatetype DESC, aggregateid DESC, position DESC LIMIT 1`, s.table, outboxtable.Pending)).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&s.last.kind, &s.last.id); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
}

// mostOfOne bounds the events of one aggregate in a batch: they are sent one after the other,
// and the batch is done when its slowest aggregate is.
const mostOfOne = 64

// takeFronts claims, of each aggregate, its first events up to one that is not free. Each
// comes with its place in the aggregate: what stands behind a row that is gone meanwhile, or that
// somebody holds, must not be sent before it.
func (s *store) takeFronts(ctx context.Context, tx pgx.Tx, c *claimed, mine []aggregate, limit int) error {
	var kinds, ids []string
	for _, a := range mine {
		kinds, ids = append(kinds, a.kind), append(ids, a.id)
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`WITH found AS MATERIALIZED (
			SELECT front.*, row_number() OVER () AS n FROM unnest($3::text[], $4::text[]) AS a (kind, id), LATERAL (
				SELECT e.id, e.size, bool_and(e.free) OVER line AS free, row_number() OVER line AS place FROM (
					SELECT id, position, octet_length(payload) AS size, %[3]s AS free FROM %[1]s
					WHERE state = %[2]d AND aggregatetype = a.kind AND aggregateid = a.id ORDER BY position LIMIT %[4]d) AS e
				WINDOW line AS (ORDER BY e.position)) AS front
			WHERE front.free LIMIT $5),
		within AS MATERIALIZED (SELECT id, place FROM `+upToMostBytes("found", "n")+`),
		mine AS MATERIALIZED (
			SELECT t.id, within.place FROM within JOIN %[1]s AS t ON t.id = within.id FOR UPDATE OF t SKIP LOCKED),
		taken AS (
			UPDATE %[1]s AS t SET claimed_by = $1::uuid, claimed_until = clock_timestamp() + make_interval(secs => $2) FROM mine
			WHERE t.id = mine.id AND t.state = %[2]d AND %[3]s
			RETURNING `+columns+`, mine.place)
		SELECT * FROM taken ORDER BY place`, s.table, outboxtable.Pending, free, mostOfOne), c.token, s.claim.Seconds(), kinds, ids, limit)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (placed, error) {
		var p placed
		return p, scanEvent(row, &p.event, &p.position)
	})
	taken := map[aggregate]int64{}
	for _, p := range found {
		a := aggregate{p.event.AggregateType, p.event.AggregateID}
		if p.position != taken[a]+1 {
			c.lost = append(c.lost, p.event.ID)
			continue
		}
		taken[a]++
		c.events = append(c.events, p.event)
	}
	return err
}

// reached is the last aggregate up to which none of those that could be claimed was left
// out, for want of room in the batch.
func (c *claimed) reached(mine []aggregate, from aggregate) aggregate {
	taken := map[aggregate]bool{}
	for _, e := range c.events {
		taken[aggregate{e.AggregateType, e.AggregateID}] = true
	}
	for _, a := range mine {
		if !taken[a] {
			return from
		}
		from = a
	}
	return from
}

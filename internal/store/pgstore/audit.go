package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// acts are acts of operators as they are written: one array for each column.
type acts struct {
	tenant, namespace, key      []string
	at                          []int64
	actor                       []string
	act                         []int16
	stateBefore, stateAfter     []int16
	versionBefore, versionAfter []int64
	verdict                     []int16
	reason, evidence            []string
	resultDigest                [][]byte
}

func (a *acts) len() int { return len(a.key) }

func (a *acts) add(entries []*reservation.AuditEntry) {
	for _, e := range entries {
		a.tenant = append(a.tenant, e.Tenant)
		a.namespace = append(a.namespace, e.Namespace)
		a.key = append(a.key, e.Key)
		a.at = append(a.at, int64(e.At))
		a.actor = append(a.actor, e.Actor)
		a.act = append(a.act, int16(e.Act))
		a.stateBefore = append(a.stateBefore, int16(e.Before.State))
		a.stateAfter = append(a.stateAfter, int16(e.After.State))
		a.versionBefore = append(a.versionBefore, e.Before.Version)
		a.versionAfter = append(a.versionAfter, e.After.Version)
		a.verdict = append(a.verdict, int16(e.Verdict))
		a.reason = append(a.reason, e.Reason)
		a.evidence = append(a.evidence, e.Evidence)
		var digest []byte
		if e.ResultDigest != (reservation.ResultDigest{}) {
			digest = e.ResultDigest[:]
		}
		a.resultDigest = append(a.resultDigest, digest)
	}
}

// auditColumns lists the columns of an act in the order in which they are written and
// read, behind its id.
func auditColumns() []column {
	return append(keyColumns(), []column{
		{"at", "bigint", ""}, {"actor", "text", ""}, {"act", "smallint", ""},
		{"state_before", "smallint", ""}, {"state_after", "smallint", ""},
		{"version_before", "bigint", ""}, {"version_after", "bigint", ""},
		{"verdict", "smallint", ""}, {"reason", "text", ""}, {"evidence", "text", ""}, {"result_digest", "bytea", ""},
	}...)
}

// arguments are the arrays in the order of auditColumns.
func (a *acts) arguments() []any {
	return []any{
		a.tenant, a.namespace, a.key, a.at, a.actor, a.act, a.stateBefore, a.stateAfter,
		a.versionBefore, a.versionAfter, a.verdict, a.reason, a.evidence, a.resultDigest,
	}
}

// auditedStatement is a statement that writes rows, and keeps the acts about those that it
// wrote: not about one at which a rival was first, which is decided anew. The row with the
// last id is held before.
func auditedStatement(write string) string {
	columns, first := auditColumns(), len(keyColumns())+len(recordColumns())+1
	return fmt.Sprintf(`WITH written AS (
%s
), kept AS (
    SELECT row_number() OVER (ORDER BY a.place) AS nth, %s
    FROM unnest(%s) WITH ORDINALITY AS a (%s, place)
    JOIN written AS w ON w.tenant = a.tenant AND w.namespace = a.namespace AND w.key = a.key
), head AS (
    UPDATE idemd.audit_head SET last = last + (SELECT count(*) FROM kept) RETURNING last
), audit AS (
    INSERT INTO idemd.audit (id, %s)
    SELECT h.last - (SELECT count(*) FROM kept) + k.nth, %s FROM kept AS k CROSS JOIN head AS h
)
SELECT tenant, namespace, key FROM written`,
		write,
		join(columns, func(_ int, c column) string { return "a." + c.name }),
		join(columns, func(i int, c column) string { return fmt.Sprintf("$%d::%s[]", first+i, c.kind) }),
		join(columns, named),
		join(columns, named),
		join(columns, func(_ int, c column) string { return "k." + c.name }))
}

// auditStatement reads a page, newest first, of the latest acts below an id; the conditions
// are checked here, so that no look goes further than the bound.
func auditStatement() string {
	return "SELECT r.id, " + join(auditColumns(), selected) + ` FROM idemd.audit AS r
WHERE r.id < $1::bigint ORDER BY r.id DESC LIMIT $2::bigint`
}

// auditStep is how many acts are read at once.
const auditStep = store.MaxBatch

// Audit implements store.Store.
func (s *Store) Audit(ctx context.Context, query store.AuditQuery) (store.AuditPage, error) {
	below := query.Below
	if below == 0 {
		below = 1<<63 - 1
	}
	var page store.AuditPage
	for examined := 0; ; {
		acts, err := s.actsBelow(ctx, below)
		if err != nil {
			return store.AuditPage{}, err
		}
		for i := range acts {
			if examined++; !page.Add(query, examined, &acts[i]) {
				return page, nil
			}
			below = acts[i].ID
		}
		if len(acts) < auditStep {
			return page, nil
		}
	}
}

func (s *Store) actsBelow(ctx context.Context, below int64) ([]reservation.AuditEntry, error) {
	return reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (all []reservation.AuditEntry, err error) {
		batch := s.beginning()
		batch.Queue(auditStatement(), below, auditStep).Query(func(rows pgx.Rows) error {
			all, err = scanActs(rows)
			return err
		})
		batch.Queue("COMMIT")
		return all, conn.SendBatch(ctx, batch).Close()
	})
}

func scanActs(rows pgx.Rows) (all []reservation.AuditEntry, err error) {
	var e reservation.AuditEntry
	var digest []byte
	targets := []any{
		&e.ID, &e.Tenant, &e.Namespace, &e.Key, (*int64)(&e.At), &e.Actor, (*uint8)(&e.Act),
		(*uint8)(&e.Before.State), (*uint8)(&e.After.State), &e.Before.Version, &e.After.Version,
		(*uint8)(&e.Verdict), &e.Reason, &e.Evidence, &digest,
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		e.ResultDigest = reservation.ResultDigest{}
		copy(e.ResultDigest[:], digest)
		all = append(all, e)
	}
	return all, rows.Err()
}

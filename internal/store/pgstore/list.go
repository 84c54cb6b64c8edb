package pgstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// List implements store.Store. Rows are read in steps, without the columns that a list does
// not show, and what they must have in common with the query beyond their address is
// compared here: no statement reads more than a step. What the database can't read hides no
// other: it is stepped over.
func (s *Store) List(ctx context.Context, query store.Query) (store.Page, error) {
	var page store.Page
	step := span{after: query.After, tenant: query.Tenant, namespace: query.Namespace, prefix: query.KeyPrefix, openOnly: query.OpenOnly(), brief: true}
	for page.End = query.After; ; step.after = page.End {
		step.limit = min(store.MaxBatch, query.Examined()-page.Examined)
		if query.Plain() {
			step.limit = min(step.limit, query.Limit-len(page.Entries))
		}
		rows, err := s.step(ctx, s.pool, step)
		if damaged(err) {
			rows, err = s.around(ctx, step, err)
		}
		if err != nil {
			return store.Page{}, store.Unavailable()
		}
		page.Now = rows.now
		for _, row := range rows.all {
			if !page.Add(query, row.address, row.record, 0) {
				return page, nil
			}
		}
		if !rows.more {
			return page, nil
		}
	}
}

// span is a part of the table that is read in the order of the keys.
type span struct {
	after                     reservation.Address
	tenant, namespace, prefix string // empty = all
	openOnly                  bool
	limit                     int
	// brief leaves out what can be large.
	brief bool
}

// stretch is what was read of a span.
type stretch struct {
	now  reservation.Time
	all  []stretchRow
	more bool // there may be others behind
}

type stretchRow struct {
	address reservation.Address
	record  *reservation.Record // nil: damage says why
	damage  error
}

// step reads up to limit rows of a span. Its statement is not on the hot path; it goes by
// the primary key or by the index of what is open. The clock is read first: see
// transaction.hold.
func (s *Store) step(ctx context.Context, pool *pgxpool.Pool, span span) (stretch, error) {
	return readingDamage(ctx, s, pool, func(ctx context.Context, conn *pgx.Conn) (read stretch, err error) {
		batch := s.beginning()
		batch.Queue(s.statements.clock).QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&read.now)) })
		batch.Queue(span.statement(), span.after.Tenant, span.after.Namespace, span.after.Key,
			span.tenant, span.namespace, span.prefix, span.limit).Query(func(rows pgx.Rows) error {
			read.all, err = scanStretch(rows)
			return err
		})
		batch.Queue("COMMIT")
		err = conn.SendBatch(ctx, batch).Close()
		read.more = len(read.all) == span.limit
		return read, err
	})
}

func scanStretch(rows pgx.Rows) (all []stretchRow, err error) {
	var address reservation.Address
	var r row
	targets := append([]any{&address.Tenant, &address.Namespace, &address.Key}, r.targets()...)
	for rows.Next() {
		r = row{}
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		read := stretchRow{address: address}
		if read.record, read.damage = r.decode(); read.damage != nil {
			read.record = nil
		}
		all = append(all, read)
	}
	return all, rows.Err()
}

// around reads what lies in front of a row that the database can't read, or of that row the
// key, which it can.
func (s *Store) around(ctx context.Context, span span, damage error) (read stretch, err error) {
	for span.limit > 1 {
		span.limit /= 2
		if read, err = s.step(ctx, s.pool, span); !damaged(err) {
			return read, err
		}
	}
	return readingDamage(ctx, s, s.pool, func(ctx context.Context, conn *pgx.Conn) (stretch, error) {
		unreadable := stretchRow{damage: damage}
		a := &unreadable.address
		err := conn.QueryRow(ctx, "SELECT idemd.clock(), r.tenant, r.namespace, r.key"+span.from(),
			span.after.Tenant, span.after.Namespace, span.after.Key, span.tenant, span.namespace, span.prefix, span.limit).
			Scan((*int64)(&read.now), &a.Tenant, &a.Namespace, &a.Key)
		read.all, read.more = []stretchRow{unreadable}, true
		return read, err
	})
}

func (s span) statement() string {
	columns := selected
	if s.brief {
		columns = summarized
	}
	return "SELECT r.tenant, r.namespace, r.key, " + join(recordColumns(), columns) + s.from()
}

// from leaves out the conditions that select everything, so that what is left fits an
// index. Parameters are named in any case: each needs a type.
func (s span) from() string {
	var where strings.Builder
	where.WriteString("(r.tenant, r.namespace, r.key) > ($1::text, $2::text, $3::text)")
	condition := func(wanted bool, always, selective string) {
		where.WriteString(" AND ")
		if wanted {
			where.WriteString(selective)
		} else {
			where.WriteString(always)
		}
	}
	// A namespace of all tenants, or a prefix in all namespaces, is compared when it was
	// read: here it would be looked for without an end.
	within := s.tenant != "" && s.namespace != ""
	condition(s.tenant != "", "$4::text IS NOT NULL", "r.tenant = $4::text")
	condition(within, "$5::text IS NOT NULL", "r.namespace = $5::text")
	condition(s.openOnly, "true", "r.expires_at IS NULL")
	// Keys are printable ASCII: all that begin with a prefix lie before it with this behind.
	condition(within && s.prefix != "", "$6::text IS NOT NULL", "r.key >= $6::text AND r.key < $6::text || chr(127)")
	return " FROM idemd.reservations AS r WHERE " + where.String() +
		" ORDER BY r.tenant, r.namespace, r.key LIMIT $7::bigint"
}

// summarized leaves out what can be large.
func summarized(i int, c column) string {
	switch c.name {
	case "result", "checkpoint", "history":
		return "NULL::bytea AS " + c.name
	}
	return selected(i, c)
}

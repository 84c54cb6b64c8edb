package pgstore

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// exactBytes is up to which size of the table finished records are counted; beyond,
// the number is what PostgreSQL last estimated.
const exactBytes = 8 << 20

// statsStatement counts what is open by its index, as reservation.Record.Unresolved and
// Lapsed tell it; storetest compares. Each row of its answer has the numbers of all
// namespaces, and then of one; there is one row at least. The oldest unresolved is told as
// 20 digits of its time and then its key: the least of them in the order of bytes.
const statsStatement = `WITH now AS MATERIALIZED (SELECT idemd.clock() AS at), open AS (
    SELECT r.tenant, r.namespace, r.key, r.state = 1 AND r.lease_expires_at > now.at AS live,
           r.state = 5 OR (r.state = 1 AND r.lease_expires_at <= now.at
               AND (r.on_lapse = 1 OR r.attempt >= r.attempts_allowed)) AS unresolved,
           CASE r.state WHEN 5 THEN r.unknown_since ELSE r.lease_expires_at END AS since
    FROM idemd.reservations AS r CROSS JOIN now
    WHERE r.expires_at IS NULL
), scopes AS MATERIALIZED (
    SELECT o.tenant, o.namespace, count(*) AS all_open, count(*) FILTER (WHERE o.live) AS live,
           count(*) FILTER (WHERE o.unresolved) AS unresolved,
           min((to_char(o.since, 'FM00000000000000000000') || o.key) COLLATE "C") FILTER (WHERE o.unresolved) AS oldest
    FROM open AS o GROUP BY o.tenant, o.namespace
), total AS (
    SELECT count(*) AS scopes, COALESCE(sum(s.all_open), 0)::bigint AS all_open, COALESCE(sum(s.live), 0)::bigint AS live,
           COALESCE(sum(s.unresolved), 0)::bigint AS unresolved
    FROM scopes AS s
), oldest AS (
    SELECT s.tenant, s.namespace, s.oldest FROM scopes AS s WHERE s.oldest IS NOT NULL
    ORDER BY left(s.oldest, 20), s.tenant, s.namespace LIMIT 1
)
SELECT now.at, CASE WHEN pg_relation_size('idemd.reservations') <= $1::bigint
           THEN (SELECT count(*) FROM idemd.reservations AS f WHERE f.expires_at IS NOT NULL)
           ELSE (SELECT greatest(c.reltuples::bigint - t.all_open, 0) FROM pg_class AS c
                 WHERE c.oid = 'idemd.reservations'::regclass)
       END,
       t.scopes, t.live, t.all_open - t.live - t.unresolved, t.unresolved,
       COALESCE(o.tenant, ''), COALESCE(o.namespace, ''), COALESCE(o.oldest, ''),
       COALESCE(s.tenant, ''), COALESCE(s.namespace, ''),
       COALESCE(s.live, 0), COALESCE(s.all_open - s.live - s.unresolved, 0), COALESCE(s.unresolved, 0), COALESCE(s.oldest, '')
FROM now CROSS JOIN total AS t LEFT JOIN oldest AS o ON true
LEFT JOIN (SELECT * FROM scopes AS s ORDER BY s.tenant, s.namespace LIMIT $2::bigint) AS s ON true`

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	return reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (stats store.Stats, err error) {
		batch := s.beginning()
		batch.Queue(statsStatement, exactBytes, store.MaxScopes).Query(func(rows pgx.Rows) error {
			stats, err = scanStats(rows)
			return err
		})
		batch.Queue("COMMIT")
		return stats, conn.SendBatch(ctx, batch).Close()
	})
}

func scanStats(rows pgx.Rows) (stats store.Stats, err error) {
	var scope store.Scope
	var counts store.Counts
	var scopes int64
	var oldest, oldestOfScope string
	targets := []any{
		(*int64)(&stats.Now), &stats.Finished, &scopes, &stats.Live, &stats.Lapsed, &stats.Unknown,
		&stats.OldestScope.Tenant, &stats.OldestScope.Namespace, &oldest,
		&scope.Tenant, &scope.Namespace, &counts.Live, &counts.Lapsed, &counts.Unknown, &oldestOfScope,
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return stats, err
		}
		if scope == (store.Scope{}) { // there is none
			continue
		}
		if stats.Scopes == nil {
			stats.Scopes = make(map[store.Scope]store.Counts)
		}
		if counts.OldestUnresolved, counts.OldestKey, err = parseOldest(oldestOfScope); err != nil {
			return stats, err
		}
		stats.Scopes[scope] = counts
	}
	stats.Cut = scopes > store.MaxScopes
	if err == nil {
		stats.OldestUnresolved, stats.OldestKey, err = parseOldest(oldest)
	}
	return stats, errors.Join(err, rows.Err())
}

// parseOldest reads a time of 20 digits with a key behind it; empty = there is none.
func parseOldest(text string) (since reservation.Time, key string, err error) {
	const digits = 20
	if len(text) < digits {
		return 0, "", nil
	}
	at, err := strconv.ParseInt(text[:digits], 10, 64)
	return reservation.Time(at), text[digits:], err
}

// Ping implements store.Store. A standby can't answer: it can't write.
func (s *Store) Ping(ctx context.Context) error {
	standby, err := reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (standby bool, err error) {
		err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery() FROM idemd.clock()").Scan(&standby)
		return standby, err
	})
	if err == nil && standby {
		err = store.Unavailable()
	}
	return err
}

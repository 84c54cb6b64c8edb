package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/store"
)

// exactBytes is up to which size of the table finished records are counted; beyond,
// the number is what PostgreSQL last estimated.
const exactBytes = 8 << 20

// statsStatement counts what is open by its index, as reservation.Record.Unresolved
// and Lapsed tell it; storetest compares.
const statsStatement = `WITH now AS MATERIALIZED (SELECT idemd.clock() AS at), open AS (
    SELECT r.state = 1 AND r.lease_expires_at > now.at AS live,
           r.state = 5 OR (r.state = 1 AND r.lease_expires_at <= now.at
               AND (r.on_lapse = 1 OR r.attempt >= r.attempts_allowed)) AS unresolved,
           CASE r.state WHEN 5 THEN r.unknown_since ELSE r.lease_expires_at END AS since
    FROM idemd.reservations AS r CROSS JOIN now
    WHERE r.expires_at IS NULL
), counts AS (
    SELECT count(*) AS all_open, count(*) FILTER (WHERE live) AS live, count(*) FILTER (WHERE unresolved) AS unresolved,
           min(since) FILTER (WHERE unresolved) AS since
    FROM open
)
SELECT now.at, live, all_open - live - unresolved, unresolved, COALESCE(since, 0),
       CASE WHEN pg_relation_size('idemd.reservations') <= $1::bigint
            THEN (SELECT count(*) FROM idemd.reservations AS f WHERE f.expires_at IS NOT NULL)
            ELSE (SELECT greatest(c.reltuples::bigint - all_open, 0) FROM pg_class AS c
                  WHERE c.oid = 'idemd.reservations'::regclass)
       END
FROM counts CROSS JOIN now`

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	return reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (stats store.Stats, err error) {
		batch := s.beginning()
		batch.Queue(statsStatement, exactBytes).QueryRow(func(row pgx.Row) error {
			return row.Scan((*int64)(&stats.Now), &stats.Live, &stats.Lapsed, &stats.Unknown,
				(*int64)(&stats.OldestUnresolved), &stats.Finished)
		})
		batch.Queue("COMMIT")
		return stats, conn.SendBatch(ctx, batch).Close()
	})
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

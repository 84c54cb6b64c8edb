package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// stripBytes is about how much one transaction reads of results whose bodies are due.
const stripBytes = 4 << 20

// strip takes the bodies out of results that have expired before their records, at most
// limit of them. What can't be read is passed over, and kept.
func (s *Store) strip(ctx context.Context, conn *pgx.Conn, limit int, swept *store.Swept) error {
	looked, kept, most := 0, 0, limit
	defer func() {
		if kept > 0 {
			s.log.Error("results whose bodies have expired, and that can't be read, are kept; run idemd check", "records", kept)
		}
	}()
	for looked < limit {
		b := &bodies{store: s, conn: conn, kept: kept}
		err := b.hold(ctx, min(limit-looked, most))
		if damaged(err) {
			if err := s.finish(ctx, conn, err); conn.IsClosed() {
				return err
			}
			// One of them can't be read: fewer at a time until it stands alone.
			if most /= 2; most == 0 {
				looked, kept, most = looked+1, kept+1, limit
			}
			continue
		}
		if err != nil {
			return err
		}
		stripped, oldest, err := b.write(ctx)
		if err != nil {
			return err
		}
		kept = b.kept
		looked += b.seen
		swept.Stripped += stripped
		if b.seen == 0 || looked >= limit || oldest == 0 {
			if oldest != 0 {
				swept.More, swept.Lag = true, max(swept.Lag, b.now.Sub(oldest))
			}
			return nil
		}
	}
	return nil
}

// bodies are those that one transaction takes out.
type bodies struct {
	store *Store
	conn  *pgx.Conn

	now      reservation.Time
	places   []string // where the rows lie
	revision []int64
	// result is what is left of each result; nil: the row's column was wrong, as a daemon
	// that knows nothing of it leaves it, and is set right.
	result [][]byte
	due    []*int64 // when the body goes instead; nil = it does not
	seen   int
	kept   int // rows in front that can't be read
}

// hold locks the rows whose bodies have expired longest, and that nobody holds. How many are
// looked at is bounded by their size too.
func (b *bodies) hold(ctx context.Context, limit int) error {
	batch := b.store.beginning()
	batch.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	batch.Queue(`SELECT r.ctid::text, idemd.clock(), `+join(recordColumns(), selected)+`
FROM idemd.reservations AS r
WHERE r.ctid = ANY (ARRAY(
    SELECT d.at FROM (
        SELECT s.ctid AS at, sum(octet_length(s.result)) OVER (ORDER BY s.body_expires_at, s.ctid) - octet_length(s.result) AS before
        FROM (SELECT e.ctid, e.result, e.body_expires_at FROM idemd.reservations AS e
              WHERE e.body_expires_at <= (SELECT idemd.clock()) ORDER BY e.body_expires_at OFFSET $3::bigint LIMIT $1::bigint) AS s
    ) AS d WHERE COALESCE(d.before, 0) < $2::bigint
)) AND r.body_expires_at IS NOT NULL
FOR UPDATE SKIP LOCKED`, limit, stripBytes, b.kept).Query(b.collect)
	return b.conn.SendBatch(ctx, batch).Close()
}

// collect decides what is left of each row that is held: by its own record, at a time that
// was read after it was held.
func (b *bodies) collect(rows pgx.Rows) error {
	var place string
	var r row
	targets := append([]any{&place, (*int64)(&b.now)}, r.targets()...)
	for ; rows.Next(); b.seen++ {
		r = row{}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		rec, damage := r.decode()
		if damage != nil {
			b.kept++
			continue
		}
		var left []byte
		var due *int64
		if rec.BodyExpired(b.now) {
			left = codec.EncodeResult(rec.Result.WithoutBody())
		} else if at := int64(rec.BodyExpiresAt()); at != 0 {
			due = &at
		}
		b.places = append(b.places, place)
		b.revision = append(b.revision, r.revision)
		b.result = append(b.result, left)
		b.due = append(b.due, due)
	}
	return rows.Err()
}

// write keeps what is left, repeating the condition, and tells since when the oldest body
// left has been expired; 0 = none is.
func (b *bodies) write(ctx context.Context) (stripped int, oldest reservation.Time, err error) {
	batch := new(pgx.Batch)
	batch.Queue(`UPDATE idemd.reservations AS r
SET result = COALESCE(w.result, r.result), body_expires_at = w.due, revision = r.revision + 1
FROM unnest($1::text[]::tid[], $2::bigint[], $3::bytea[], $4::bigint[]) AS w (place, revision, result, due)
WHERE r.ctid = w.place AND r.revision = w.revision AND r.body_expires_at IS NOT NULL`, b.places, b.revision, b.result, b.due).
		Exec(func(pgconn.CommandTag) error { return nil })
	batch.Queue(`SELECT COALESCE((SELECT e.body_expires_at FROM idemd.reservations AS e
WHERE e.body_expires_at <= $1::bigint ORDER BY e.body_expires_at OFFSET $2::bigint LIMIT 1), 0)`, int64(b.now), b.kept).
		QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&oldest)) })
	batch.Queue("COMMIT")
	if err := b.conn.SendBatch(ctx, batch).Close(); err != nil {
		return 0, 0, err
	}
	for _, left := range b.result {
		if left != nil {
			stripped++
		}
	}
	return stripped, oldest, nil
}

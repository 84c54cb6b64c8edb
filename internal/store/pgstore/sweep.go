package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// wholeResult is up to which size the sweeper looks whether a result can be decoded.
// Of a larger one it reads the first byte: its version.
const wholeResult = 8 << 10

// Sweep implements store.Store. It costs no flush: a deletion that a crash undoes is
// done again. A sweep that fails is not tried again here: the next one is soon.
func (s *Store) Sweep(ctx context.Context, limit int) (store.Swept, error) {
	swept, err := detached(ctx, s, func() (swept store.Swept, err error) {
		err = s.on(ctx, s.side, func(ctx context.Context, conn *pgx.Conn) error {
			w := &sweep{store: s, conn: conn, from: s.sweeps.begin(time.Now()), unreadable: []string{}}
			swept, err = w.run(ctx, limit)
			if err == nil {
				s.sweeps.end(w.last)
				err = s.strip(ctx, conn, limit, &swept)
			}
			return s.finish(ctx, conn, err)
		})
		if !damaged(err) {
			s.note(ctx, err)
		}
		return swept, err
	})
	if err != nil {
		return store.Swept{}, store.Unavailable()
	}
	return swept, nil
}

// fromTheStart is how often a sweep goes through the index from its beginning. The others
// begin where the last one ended: before it lie the entries of all that was deleted
// until autovacuum removes them, and to step over a million of them makes a sweep take
// three times as long (measured: 12 ms instead of 4.5). What rivals held there is found
// the next time.
const fromTheStart = 30 * time.Second

// sweeps remembers how far this daemon's sweeps have come.
type sweeps struct {
	mu      sync.Mutex
	last    reservation.Time // expiry of what was swept last
	started time.Time        // when one went from the beginning
}

// begin tells from which expiry on a sweep looks.
func (s *sweeps) begin(now time.Time) reservation.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.started) >= fromTheStart {
		s.started, s.last = now, 0
	}
	return s.last
}

func (s *sweeps) end(last reservation.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, last)
}

// sweep is one sweep under way.
type sweep struct {
	store *Store
	conn  *pgx.Conn
	from  reservation.Time // what expired earlier is not looked at
	last  reservation.Time // the expiry of the last that was looked at

	now  reservation.Time
	due  []string // where the rows lie that are to be deleted
	kept int      // expired rows, oldest first, that can't be decoded
	// unreadable is where rows lie that the database can't read.
	unreadable []string
}

// maxPasses bounds how many batches a sweep looks at where damaged rows lie in front.
const maxPasses = 20

func (w *sweep) run(ctx context.Context, limit int) (swept store.Swept, err error) {
	most := limit
	for range maxPasses {
		wanted := min(limit-swept.Deleted, most)
		seen, err := w.hold(ctx, wanted)
		if damaged(err) {
			if err := w.store.finish(ctx, w.conn, err); w.conn.IsClosed() {
				return swept, err
			}
			// One of them can't be read. The others are swept, fewer at a time until it
			// stands alone; then it is stepped over.
			if most = wanted / 2; most == 0 {
				most = limit
				if err := w.stepOver(ctx); err != nil {
					return swept, err
				}
			}
			continue
		}
		if err != nil {
			return swept, err
		}
		deleted, oldest, err := w.delete(ctx)
		if err != nil {
			return swept, err
		}
		swept.Deleted += deleted
		swept.More, swept.Lag = oldest != 0, 0
		if swept.More {
			swept.Lag = w.now.Sub(oldest)
		}
		if seen < wanted || swept.Deleted >= limit {
			break
		}
	}
	if kept := w.kept + len(w.unreadable); kept > 0 {
		w.store.log.Error("expired records that can't be read are kept; run idemd check", "records", kept)
	}
	return swept, nil
}

// stepOver leaves out the oldest row, which the database can't read: where it lies and
// when it expired can be read.
func (w *sweep) stepOver(ctx context.Context) error {
	var place string
	err := w.conn.QueryRow(ctx, `SELECT r.ctid::text, r.expires_at FROM idemd.reservations AS r
WHERE r.expires_at >= $2::bigint AND r.ctid <> ALL ($3::text[]::tid[]) ORDER BY r.expires_at OFFSET $1::bigint LIMIT 1`,
		w.kept, int64(w.from), w.unreadable).Scan(&place, (*int64)(&w.last))
	w.unreadable = append(w.unreadable, place)
	return err
}

// hold locks the oldest expired rows that nobody holds: other sweepers take others.
// The condition is checked again on the version that is locked, by the same time;
// what was expired then is expired still.
func (w *sweep) hold(ctx context.Context, limit int) (seen int, err error) {
	columns := recordColumns()
	batch := w.store.beginning()
	batch.Queue("SELECT set_config('synchronous_commit', 'off', true)")
	batch.Queue(w.store.statements.clock).QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&w.now)) })
	batch.Queue(`SELECT r.ctid::text, `+join(columns, sweepable)+`
FROM idemd.reservations AS r
WHERE r.expires_at >= $3::bigint AND r.expires_at <= (SELECT idemd.clock()) AND r.ctid <> ALL ($4::text[]::tid[])
ORDER BY r.expires_at OFFSET $1::bigint LIMIT $2::bigint
FOR UPDATE SKIP LOCKED`, w.kept, limit, int64(w.from), w.unreadable).Query(func(rows pgx.Rows) error {
		seen, err = w.collect(rows)
		return err
	})
	return seen, w.conn.SendBatch(ctx, batch).Close()
}

// sweepable reads of a large result the first byte only: see wholeResult.
func sweepable(i int, c column) string {
	if c.name == "result" {
		return fmt.Sprintf("CASE WHEN octet_length(r.result) > %d THEN substring(r.result FROM 1 FOR 1) ELSE r.result END AS result", wholeResult)
	}
	return selected(i, c)
}

// collect notes which rows may be deleted: a damaged one is kept for repair.
func (w *sweep) collect(rows pgx.Rows) (seen int, err error) {
	w.due = w.due[:0]
	var place string
	var r row
	targets := append([]any{&place}, r.targets()...)
	for ; rows.Next(); seen++ {
		r = row{}
		if err := rows.Scan(targets...); err != nil {
			return seen, err
		}
		w.last = reservation.Time(r.expiresAt)
		if _, damage := r.decode(); damage != nil {
			w.kept++
		} else {
			w.due = append(w.due, place)
		}
	}
	return seen, rows.Err()
}

// delete deletes the rows that are held, repeating the condition, and tells since when
// the oldest one left is expired; 0 = none is.
func (w *sweep) delete(ctx context.Context) (deleted int, oldest reservation.Time, err error) {
	batch := new(pgx.Batch)
	batch.Queue(`DELETE FROM idemd.reservations AS r
WHERE r.ctid = ANY ($1::text[]::tid[]) AND r.expires_at <= $2::bigint AND r.state IN (2, 3, 4)`, w.due, int64(w.now)).
		Exec(func(tag pgconn.CommandTag) error {
			deleted = int(tag.RowsAffected())
			return nil
		})
	batch.Queue(`SELECT COALESCE((SELECT r.expires_at FROM idemd.reservations AS r
WHERE r.expires_at >= $3::bigint AND r.expires_at <= $1::bigint
AND r.ctid <> ALL ($4::text[]::tid[]) ORDER BY r.expires_at OFFSET $2::bigint LIMIT 1), 0)`,
		int64(w.now), w.kept, int64(w.from), w.unreadable).
		QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&oldest)) })
	batch.Queue("COMMIT")
	return deleted, oldest, w.conn.SendBatch(ctx, batch).Close()
}

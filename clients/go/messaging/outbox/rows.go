package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/clients/go/messaging/internal/outboxtable"
)

// State is where an event stands.
type State int

// The states of an event.
const (
	Pending State = outboxtable.Pending // to be sent, or being sent
	Sent    State = outboxtable.Sent    // the broker has acknowledged it
	Parked  State = outboxtable.Parked  // given up: see Redrive
)

// DB runs statements: a *pgxpool.Pool, a *pgx.Conn, a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

// Row is an event in the table, without its payload and headers.
type Row struct {
	Position      int64  `json:"position"`
	ID            string `json:"id"`
	AggregateType string `json:"aggregate_type"`
	AggregateID   string `json:"aggregate_id"`
	Type          string `json:"type"`
	PayloadBytes  int    `json:"payload_bytes"`
	// Attempts that count: see package relay.
	Attempts int `json:"attempts"`
	// LastError is what its last failed attempt was told.
	LastError string    `json:"last_error,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// MaxList is how many rows List gives at most.
const MaxList = 1000

// List gives rows that are Pending or Parked, in the order of their positions, those behind
// position after (0 = from the start). Sent rows are not listed: no index has them in order.
func (o *Outbox) List(ctx context.Context, db DB, state State, after int64, limit int) ([]Row, error) {
	if state != Pending && state != Parked {
		return nil, errors.New("outbox: only what is pending or parked can be listed")
	}
	if limit < 1 || limit > MaxList {
		return nil, fmt.Errorf("outbox: a limit of %d; 1 to %d", limit, MaxList)
	}
	// The state stands in the text: a plan for any state could not use the partial indexes.
	found, err := db.Query(ctx, fmt.Sprintf(`SELECT position, id::text, aggregatetype, aggregateid, type, octet_length(payload), attempts,
			coalesce(last_error, ''), created_at
		FROM %s WHERE state = %d AND position > $1 ORDER BY position LIMIT $2`, o.table, state), after, limit)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[Row])
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return rows, nil
}

// Stats is how an outbox stands.
type Stats struct {
	Pending int64 `json:"pending"`
	Parked  int64 `json:"parked"`
	// OldestPending is the age of the pending event that is first in the line; zero where
	// there is none.
	OldestPending time.Duration `json:"oldest_pending_ns"`
}

// Stats counts: its time grows with what is pending.
func (o *Outbox) Stats(ctx context.Context, db DB) (Stats, error) {
	var s Stats
	err := db.QueryRow(ctx, fmt.Sprintf(`SELECT
			(SELECT count(*) FROM %[1]s WHERE state = %[2]d),
			(SELECT count(*) FROM %[1]s WHERE state = %[3]d),
			coalesce((SELECT clock_timestamp() - created_at FROM %[1]s WHERE state = %[2]d ORDER BY position LIMIT 1), '0')`,
		o.table, Pending, Parked)).Scan(&s.Pending, &s.Parked, &s.OldestPending)
	if err != nil {
		return Stats{}, fmt.Errorf("outbox: %w", err)
	}
	return s, nil
}

// changeBatch bounds the rows, and with them the time, of one statement of Redrive and of
// Sweep.
const changeBatch = 500

// Redrive makes parked events pending again, with all their attempts before them, and tells
// how many there were. They go to the end of the line, in the order in which they stood:
// what came after them may have been sent long ago, so no order holds for them.
func (o *Outbox) Redrive(ctx context.Context, db DB, ids ...string) (redriven int64, err error) {
	return o.redriveThose(ctx, db, `id = ANY($3::uuid[])`, ids)
}

// RedriveAll is Redrive for all that are parked now, of one type of event; "" = of all.
func (o *Outbox) RedriveAll(ctx context.Context, db DB, eventType string) (redriven int64, err error) {
	return o.redriveThose(ctx, db, `($3 = '' OR type = $3)`, eventType)
}

func (o *Outbox) redriveThose(ctx context.Context, db DB, which string, argument any) (redriven int64, err error) {
	var last int64 // what is parked again meanwhile stands behind it
	err = db.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(max(position), 0) FROM %s WHERE state = %d`, o.table, Parked)).Scan(&last)
	for n := int64(changeBatch); err == nil && n == changeBatch; redriven += n {
		n, err = o.redrive(ctx, db, `position <= $2 AND `+which, last, argument)
	}
	if err != nil {
		return redriven, fmt.Errorf("outbox: %w", err)
	}
	return redriven, o.wake(ctx, db, redriven)
}

func (o *Outbox) redrive(ctx context.Context, db DB, which string, arguments ...any) (int64, error) {
	tag, err := db.Exec(ctx, fmt.Sprintf(`WITH line AS MATERIALIZED (
			SELECT id FROM %[1]s WHERE state = %[2]d AND %[3]s ORDER BY position LIMIT $1 FOR UPDATE SKIP LOCKED),
		placed AS MATERIALIZED (SELECT id, nextval(pg_get_serial_sequence('%[1]s', 'position')) AS position FROM line)
		UPDATE %[1]s AS t SET state = %[4]d, position = placed.position, attempts = 0, next_attempt_at = '-infinity'
		FROM placed WHERE t.id = placed.id AND t.state = %[2]d`,
		o.table, Parked, which, Pending), append([]any{changeBatch}, arguments...)...)
	return tag.RowsAffected(), err
}

func (o *Outbox) wake(ctx context.Context, db DB, redriven int64) error {
	if redriven == 0 || !o.notify {
		return nil
	}
	if _, err := db.Exec(ctx, `SELECT pg_notify($1, '')`, o.table.Channel()); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

package outbox

import (
	"context"
	"fmt"
	"time"
)

// DefaultRetention is how long sent rows are kept where nothing else is said.
const DefaultRetention = 7 * 24 * time.Hour

// Sweep removes rows that were sent longer ago than the retention, by the database's clock,
// 500 in a statement, until there are none. What is pending or parked stays. Several
// processes may at once.
func (o *Outbox) Sweep(ctx context.Context, db DB, retention time.Duration) (swept int64, err error) {
	return o.sweep(ctx, db, retention, fmt.Sprintf(`SELECT id FROM %s WHERE state = %d AND sent_at < clock_timestamp() - $1::interval
		ORDER BY sent_at LIMIT $2 FOR UPDATE SKIP LOCKED`, o.table, Sent), Sent)
}

// SweepByAge removes rows that were added longer ago than the retention, sent or not. It is
// for a table that is read from PostgreSQL's log, where nothing is ever marked as sent;
// with a relay it would lose events. The retention must be longer than the reader may be
// away for.
func (o *Outbox) SweepByAge(ctx context.Context, db DB, retention time.Duration) (swept int64, err error) {
	// Positions are nearly in the order of age: who looks at the first ones sees the oldest,
	// and need not read all.
	return o.sweep(ctx, db, retention, fmt.Sprintf(`SELECT id FROM (
			SELECT id, created_at FROM %s WHERE state = %d ORDER BY position LIMIT $2 FOR UPDATE SKIP LOCKED) AS oldest
		WHERE created_at < clock_timestamp() - $1::interval`, o.table, Pending), Pending)
}

func (o *Outbox) sweep(ctx context.Context, db DB, retention time.Duration, which string, state State) (swept int64, err error) {
	if retention <= 0 {
		return 0, fmt.Errorf("outbox: a retention of %v", retention)
	}
	for {
		tag, err := db.Exec(ctx, fmt.Sprintf(`WITH old AS MATERIALIZED (%s) DELETE FROM %s AS t USING old WHERE t.id = old.id AND t.state = %d`,
			which, o.table, state), retention, changeBatch)
		if err != nil {
			return swept, fmt.Errorf("outbox: %w", err)
		}
		swept += tag.RowsAffected()
		if tag.RowsAffected() < changeBatch {
			return swept, nil
		}
	}
}

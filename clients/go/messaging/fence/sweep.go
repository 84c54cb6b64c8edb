package fence

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// DefaultRetention is how long rows are kept where nothing else is said.
const DefaultRetention = 30 * 24 * time.Hour

// sweepBatch bounds the rows, and with them the time, of one statement.
const sweepBatch = 500

// Execer runs a statement: a *pgxpool.Pool.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// Sweep removes the rows that are older than the retention, by the database's clock, 500
// in a statement, until there are none. Several processes may at once.
//
// The retention must be longer than the longest after which anybody repeats an operation
// that idemd has not heard the end of: without its row such an attempt would commit again.
func (t *Table) Sweep(ctx context.Context, db Execer, retention time.Duration) (swept int64, err error) {
	if retention <= 0 {
		return 0, fmt.Errorf("fence: a retention of %v", retention)
	}
	for {
		tag, err := db.Exec(ctx, `DELETE FROM `+t.name.String()+` WHERE (tenant, namespace, key) IN (
				SELECT tenant, namespace, key FROM `+t.name.String()+`
				WHERE committed_at < clock_timestamp() - $1::interval
				ORDER BY committed_at LIMIT $2 FOR UPDATE SKIP LOCKED)
			AND committed_at < clock_timestamp() - $1::interval`, retention, sweepBatch)
		if err != nil {
			return swept, fmt.Errorf("fence: %w", err)
		}
		swept += tag.RowsAffected()
		if tag.RowsAffected() < sweepBatch {
			return swept, nil
		}
	}
}

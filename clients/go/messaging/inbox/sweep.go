package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
)

// DefaultRetention is how long rows are kept where nothing else is said: longer than
// brokers keep messages to deliver them again (the default of Kafka is 7 days, the most of
// SQS 14), and than dead letters usually wait to be sent once more.
const DefaultRetention = 30 * 24 * time.Hour

// sweepBatch bounds the rows, and with them the time, of one statement.
const sweepBatch = 500

// Sweep removes marks and counts that are older than the retention, by the database's
// clock, 500 in a statement, until there are none. Several processes may at once.
//
// The retention must be longer than the broker's longest redelivery, by hand and from dead
// letters too: a message whose mark is gone is done again.
func (t *Table) Sweep(ctx context.Context, db Execer, retention time.Duration) (swept int64, err error) {
	if retention <= 0 {
		return 0, fmt.Errorf("inbox: a retention of %v", retention)
	}
	marks, err := sweep(ctx, db, t.name, "consumer, kind, id", "done_at", retention)
	if err != nil {
		return marks, err
	}
	counts, err := sweep(ctx, db, t.failures, "consumer, id", "failed_at", retention)
	return marks + counts, err
}

func sweep(ctx context.Context, db Execer, table pgtable.Name, key, at string, retention time.Duration) (swept int64, err error) {
	for {
		tag, err := db.Exec(ctx, `DELETE FROM `+table.String()+` WHERE (`+key+`) IN (
				SELECT `+key+` FROM `+table.String()+`
				WHERE `+at+` < clock_timestamp() - $1::interval
				ORDER BY `+at+` LIMIT $2 FOR UPDATE SKIP LOCKED)
			AND `+at+` < clock_timestamp() - $1::interval`, retention, sweepBatch)
		if err != nil {
			return swept, fmt.Errorf("inbox: %w", err)
		}
		swept += tag.RowsAffected()
		if tag.RowsAffected() < sweepBatch {
			return swept, nil
		}
	}
}

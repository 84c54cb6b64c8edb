package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// maxErrorBytes is how much of an error's text is kept.
const maxErrorBytes = 512

// CountFailure notes, in a transaction of its own (the one that has failed is gone), that
// handling the message has failed, and why: 512 bytes of the text are kept. It returns how
// often it has by now.
func (t *Table) CountFailure(ctx context.Context, tx pgx.Tx, m Message, cause string) (attempts int, err error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `INSERT INTO `+t.failures.String()+` AS f (consumer, id, attempts, last_error, failed_at)
		VALUES ($1, $2, 1, $3, clock_timestamp())
		ON CONFLICT (consumer, id) DO UPDATE
		SET attempts = f.attempts + 1, last_error = EXCLUDED.last_error, failed_at = EXCLUDED.failed_at
		RETURNING attempts`, m.Consumer, m.ID, cut(cause)).Scan(&attempts)
	if err != nil {
		return 0, fmt.Errorf("inbox: %w", err)
	}
	return attempts, nil
}

// Settle is for who acknowledges the message after COMMIT: call it before that, in the
// same transaction. It removes the count of failures, and where the session's COMMITs don't
// wait for the disk, this one does: what is acknowledged must not be lost.
func (t *Table) Settle(ctx context.Context, tx pgx.Tx, m Message) error {
	if _, err := tx.Exec(ctx, `WITH forgotten AS (DELETE FROM `+t.failures.String()+` WHERE consumer = $1 AND id = $2)
		SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`, m.Consumer, m.ID); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// cut makes a text storable: valid UTF-8 without zero bytes, and short.
func cut(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
}

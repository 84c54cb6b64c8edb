package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Settings are what is in force within the transactions of a store.
type Settings struct {
	SynchronousCommit, Isolation    string // of the transaction
	Fsync, FullPageWrites, Encoding string // of the server and the database
}

// Settings begins a transaction as Apply does and reads what is in force in it.
func (s *Store) Settings(ctx context.Context) (Settings, error) {
	return detached(ctx, s, func() (settings Settings, err error) {
		err = s.on(ctx, s.side, func(ctx context.Context, conn *pgx.Conn) error {
			batch := s.beginning()
			batch.Queue(`SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation'),
       current_setting('fsync'), current_setting('full_page_writes'), current_setting('server_encoding')`).
				QueryRow(func(row pgx.Row) error {
					return row.Scan(&settings.SynchronousCommit, &settings.Isolation,
						&settings.Fsync, &settings.FullPageWrites, &settings.Encoding)
				})
			batch.Queue("COMMIT")
			return s.finish(ctx, conn, conn.SendBatch(ctx, batch).Close())
		})
		return settings, err
	})
}

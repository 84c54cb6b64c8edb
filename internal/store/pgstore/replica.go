package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/internal/reservation"
)

// Where PostgreSQL replicates synchronously, a COMMIT that is told to stop waiting for its
// standby (a time-out, an operator) does not fail: it warns. The transaction is then on
// one machine only, and everybody can see it. Whoever was waiting for it is told nothing,
// and comes again with the same token; the answer to that is read, and reading waits for
// no standby. So what repeats an earlier answer is sent behind a commit of its own, which
// waits until the standby has all that came before.

// errNotReplicated says that a transaction is committed, but not on the standby.
var errNotReplicated = errors.New("the commit stopped waiting for its standby")

// waitForStandby is the routine that warns. The text of the warning depends on the
// server's language, its code is that of any warning.
const waitForStandby = "SyncRepWaitForLSN"

// unreplicated marks a connection whose last commit was not waited for.
const unreplicated = "unreplicated"

func noteNotice(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == waitForStandby {
		conn.CustomData()[unreplicated] = true
	}
}

// demandReplicated fails where the connection's last commit was not waited for.
func demandReplicated(conn *pgx.Conn) error {
	if data := conn.PgConn().CustomData(); data[unreplicated] != nil {
		delete(data, unreplicated)
		return errNotReplicated
	}
	return nil
}

// repeats tells whether an answer says what an earlier call has written.
func (t *transaction) repeats() bool {
	for _, group := range t.groups {
		for _, i := range group.Indexes {
			switch o := t.batch.outcomes[i].(type) {
			case *reservation.Owned:
				if o.Repeated {
					return true
				}
			case *reservation.Recorded:
				if o.Repeated {
					return true
				}
			}
		}
	}
	return false
}

// barrier commits nothing but a mark in the log: it returns when everything before it is
// where a commit of this server has to be.
func (t *transaction) barrier(ctx context.Context) error {
	batch := new(pgx.Batch)
	batch.Queue("SELECT pg_catalog.pg_logical_emit_message(true, 'idemd', '')")
	batch.Queue("COMMIT").Exec(demandCommitted)
	return t.store.finish(ctx, t.conn, t.conn.SendBatch(ctx, batch).Close())
}

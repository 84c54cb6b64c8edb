package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/clients/go/idem"
)

// How Run tries again.
const (
	runTries   = 6
	firstPause = 10 * time.Millisecond // doubled each time
)

// Beginner begins transactions: a *pgxpool.Pool.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Effect is what an operation does to the database, and its result. It uses nothing but
// the transaction: what it does besides would not be undone with it.
type Effect func(ctx context.Context, tx pgx.Tx) (*idem.Result, error)

// Run is a whole attempt of a Transactional operation: it begins a transaction, guards it,
// runs the effect, stores its result and commits. If an attempt has committed before, it
// returns that one's result and the effect is not run.
//
// The effect runs again where the database asks for that (serialization failures,
// deadlocks), and where the reply to COMMIT got lost and nothing turns out to be
// committed: six times in all, within a third of a second. Its own error rolls back and is
// returned as it is. An error that leaves open whether it committed is idem.Unknown: the
// next attempt finds out.
func (t *Table) Run(ctx context.Context, db Beginner, g *idem.Grant, effect Effect) (*idem.Result, error) {
	a := attempt{table: t, db: db, grant: g, effect: effect}
	var last error
	for try, pause := 1, firstPause; ; try, pause = try+1, 2*pause {
		result, err := a.once(ctx)
		if err == nil {
			return result, nil
		}
		last = err
		if !a.open && !again(err) || try == runTries || !wait(ctx, pause) {
			break
		}
	}
	if a.open {
		return nil, idem.Unknown(fmt.Errorf("fence: it may have committed: %w", last))
	}
	return nil, last
}

// attempt is what the transactions of one Run share.
type attempt struct {
	table  *Table
	db     Beginner
	grant  *idem.Grant
	effect Effect
	// open: the reply to a COMMIT got lost, and nothing has been found out since.
	open bool
}

// once is one transaction.
func (a *attempt) once(ctx context.Context) (*idem.Result, error) {
	tx, err := a.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	committed, err := a.table.Guard(ctx, tx, a.grant)
	if committed != nil || err != nil {
		return committed, err
	}
	a.open = false // it has waited for the one before, which has not committed
	result, err := a.effect(ctx, tx)
	if err != nil {
		return nil, err
	}
	if result == nil {
		result = &idem.Result{}
	}
	if err := a.table.Store(ctx, tx, a.grant, result); err != nil {
		return nil, err
	}
	if err := tx.Commit(ctx); err != nil {
		a.open = !refused(err)
		return nil, err
	}
	return result, nil
}

// refused: the database says that it did not commit. What ends its session may come after
// the commit.
func refused(err error) bool {
	var said *pgconn.PgError
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.As(err, &said) && said.SeverityUnlocalized == "ERROR" && said.Code != completionUnknown
}

// again: the same transaction can succeed when it is run again.
func again(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == serializationFailure || said.Code == deadlockDetected)
}

// Codes of PostgreSQL, appendix A of its manual.
const (
	serializationFailure = "40001"
	completionUnknown    = "40003"
	deadlockDetected     = "40P01"
)

// wait is false if ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

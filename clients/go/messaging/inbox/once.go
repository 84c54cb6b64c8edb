package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Func is what a message does to the database, and a result for later copies of it. It uses
// nothing but the transaction, and does not end it: what it does besides would not be
// undone with it.
type Func = func(ctx context.Context, tx pgx.Tx) ([]byte, error)

// Once runs fn if neither the message nor what it is about has been done by this consumer,
// and notes that it is, in the caller's own transaction: mark, result and all that fn
// writes are committed together or not at all. Otherwise fn is not run, and the result is
// that of the first one; first says which it was. Nil and empty results are the same.
//
// A copy that comes while the first one's transaction is open waits for its end. After an
// error of fn, or a panic, the transaction is as it was before Once: there is no mark, and
// the next delivery runs fn again, whether the caller commits or not. Where that itself has
// failed, the error says so, and the transaction can't commit any more.
//
// Errors: an *InvalidError about the message, before anything is written; a
// *ResultTooLargeError; fn's own, as it is; the database's. Under REPEATABLE READ and
// SERIALIZABLE a copy that had to wait gets 40001: run the whole transaction again.
//
// Of several Onces in one transaction whoever does them in another order can deadlock, and
// PostgreSQL ends one of the two (40P01). One Once in a transaction can't.
func (t *Table) Once(ctx context.Context, tx pgx.Tx, m Message, fn Func) (result []byte, first bool, err error) {
	if err := m.Check(); err != nil {
		return nil, false, err
	}
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("inbox: %w", err)
	}
	done := false
	defer func() {
		if done {
			return
		}
		// Also on a panic, which goes on, and where ctx is what has failed.
		if undo := savepoint.Rollback(context.WithoutCancel(ctx)); undo != nil {
			err = errors.Join(err, fmt.Errorf("inbox: the transaction must not commit: %w", undo))
		}
	}()
	if result, first, err = t.once(ctx, savepoint, m, fn); err != nil {
		return nil, false, err
	}
	if err := savepoint.Commit(ctx); err != nil {
		return nil, false, fmt.Errorf("inbox: %w", err)
	}
	done = true
	return result, first, nil
}

func (t *Table) once(ctx context.Context, tx pgx.Tx, m Message, fn Func) (result []byte, first bool, err error) {
	// Always the message before what it is about: whoever holds a business identity waits
	// for no message, so there is no circle.
	marks := []mark{{m.Consumer, "message", m.ID}}
	if m.Business != "" {
		marks = append(marks, mark{m.Consumer, "business", m.Business})
	}
	for i, one := range marks {
		result, ours, err := t.claim(ctx, tx, one)
		if err != nil {
			return nil, false, err
		}
		if !ours {
			return result, false, t.store(ctx, tx, marks[:i], result)
		}
	}
	if result, err = fn(ctx, lentTx{tx}); err != nil {
		return nil, false, err
	}
	if len(result) > MaxResultBytes {
		return nil, false, &ResultTooLargeError{len(result)}
	}
	return result, true, t.store(ctx, tx, marks, result)
}

// lentTx is a transaction that fn does not end.
type lentTx struct{ pgx.Tx }

var errLent = errors.New("inbox: the transaction is not the handler's to end: it commits with its mark")

// Commit refuses.
func (lentTx) Commit(context.Context) error { return errLent }

// Rollback refuses: an error undoes what was done.
func (lentTx) Rollback(context.Context) error { return errLent }

// ResultTooLargeError says that what was done has been undone, because its result is longer
// than MaxResultBytes.
type ResultTooLargeError struct{ Bytes int }

// Error implements error.
func (e *ResultTooLargeError) Error() string {
	return fmt.Sprintf("inbox: a result of %d bytes; %d are allowed", e.Bytes, MaxResultBytes)
}

// mark is the key of a row.
type mark struct{ consumer, kind, id string }

// claimTries bounds how often a row may be swept between looking and looking.
const claimTries = 5

// claim writes the row, or finds the result of the transaction that has. It waits for one
// that is under way.
func (t *Table) claim(ctx context.Context, tx pgx.Tx, m mark) (result []byte, ours bool, err error) {
	for range claimTries {
		tag, err := tx.Exec(ctx, `INSERT INTO `+t.name.String()+` (consumer, kind, id, done_at)
			VALUES ($1, $2, $3, clock_timestamp()) ON CONFLICT DO NOTHING`, m.consumer, m.kind, m.id)
		if err != nil {
			return nil, false, fmt.Errorf("inbox: %w", err)
		}
		if tag.RowsAffected() == 1 {
			return nil, true, nil
		}
		err = tx.QueryRow(ctx, `SELECT result FROM `+t.name.String()+` WHERE consumer = $1 AND kind = $2 AND id = $3`,
			m.consumer, m.kind, m.id).Scan(&result)
		switch {
		case err == nil && result == nil:
			return nil, false, fmt.Errorf("inbox: Once of a %s within Once of the same one", m.kind)
		case err == nil:
			return result, false, nil
		case !errors.Is(err, pgx.ErrNoRows):
			return nil, false, fmt.Errorf("inbox: %w", err)
		}
	}
	return nil, false, errors.New("inbox: the row is swept and written at the same time, over and over")
}

// store puts the result into the rows that were claimed.
func (t *Table) store(ctx context.Context, tx pgx.Tx, marks []mark, result []byte) error {
	if result == nil {
		result = []byte{} // null is a row that is being written
	}
	for _, m := range marks {
		if _, err := tx.Exec(ctx, `UPDATE `+t.name.String()+` SET result = $4 WHERE consumer = $1 AND kind = $2 AND id = $3`,
			m.consumer, m.kind, m.id, result); err != nil {
			return fmt.Errorf("inbox: %w", err)
		}
	}
	return nil
}

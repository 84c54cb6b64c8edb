package service

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	paymentsv1 "github.com/idemd/idemd/examples/payments/proto/payments/v1"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// schema makes the tables, and an account to try things on. changes has the operation of
// each change beside it: its key, and when it was reserved first (microseconds), for idemd
// forgets keys after their retention, and one that is used again then is another operation.
// It can be swept after the retention.
const schema = `
CREATE TABLE IF NOT EXISTS accounts (
	id          TEXT PRIMARY KEY,
	limit_cents INTEGER NOT NULL,
	version     INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS changes (
	key         TEXT NOT NULL,
	reserved_at INTEGER NOT NULL,
	id          TEXT NOT NULL,
	limit_cents INTEGER NOT NULL,
	version     INTEGER NOT NULL,
	PRIMARY KEY (key, reserved_at)
);
INSERT INTO accounts VALUES ('acme', 10000, 1) ON CONFLICT DO NOTHING;`

// Accounts are rows that many change. They may be used by many goroutines, of one process
// at a time.
type Accounts struct{ db *sql.DB }

// OpenAccounts opens the database in a file, and makes it if it is not there.
func OpenAccounts(file string) (*Accounts, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(schema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("accounts: %w", err)
	}
	return &Accounts{db}, nil
}

// Close closes the database.
func (a *Accounts) Close() error { return a.db.Close() }

// Get reads an account; sql.ErrNoRows if there is none.
func (a *Accounts) Get(ctx context.Context, id string) (*paymentsv1.Account, error) {
	return scan(a.db.QueryRowContext(ctx, "SELECT id, limit_cents, version FROM accounts WHERE id = ?", id))
}

// conflictError: the account is not as the caller has seen it.
type conflictError struct{ current int64 }

// Error implements error.
func (e *conflictError) Error() string {
	return fmt.Sprintf("the account has changed since it was read: its version is %d by now", e.current)
}

// Update changes an account that has this version, for the operation of a key that was
// reserved at this time. An error means that nothing was changed, unless it is one of the
// commit: that one is declared.
//
// Two things are asked here that look alike. "Was this very request done before?" is
// answered by key and time, the same on every attempt: an attempt may have committed and died before it could tell. "Has
// somebody else changed the row?" is answered by the version, which stands in the UPDATE
// itself: whoever reads first and writes later overwrites what came between.
//
// The fence need not be checked. An attempt that was only paused has the key of the one
// that took over: of the two, one commits.
func (a *Accounts) Update(ctx context.Context, key string, reservedAt time.Time, id string, limit, version int64) (*paymentsv1.Account, error) {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	done, err := scan(tx.QueryRowContext(ctx,
		"SELECT id, limit_cents, version FROM changes WHERE key = ? AND reserved_at = ?", key, reservedAt.UnixMicro()))
	if !errors.Is(err, sql.ErrNoRows) {
		return done, err
	}
	changed, err := scan(tx.QueryRowContext(ctx,
		"UPDATE accounts SET limit_cents = ?, version = version + 1 WHERE id = ? AND version = ? RETURNING id, limit_cents, version",
		limit, id, version))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, whyNot(ctx, tx, id)
	}
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO changes VALUES (?, ?, ?, ?, ?)",
		key, reservedAt.UnixMicro(), id, changed.GetLimitCents(), changed.GetVersion()); err != nil {
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, idem.Unknown(err)
	}
	return changed, nil
}

// whyNot says why no row was changed: there is none, or it has another version.
func whyNot(ctx context.Context, tx *sql.Tx, id string) error {
	current, err := scan(tx.QueryRowContext(ctx, "SELECT id, limit_cents, version FROM accounts WHERE id = ?", id))
	if err != nil {
		return err
	}
	return &conflictError{current.GetVersion()}
}

func scan(row *sql.Row) (*paymentsv1.Account, error) {
	account := &paymentsv1.Account{}
	if err := row.Scan(&account.Id, &account.LimitCents, &account.Version); err != nil {
		return nil, err
	}
	return account, nil
}

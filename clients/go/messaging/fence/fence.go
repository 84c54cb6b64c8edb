package fence

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultTable is the table's name where none is given.
const DefaultTable = "idem_fence"

// Table is where it stands which operations have committed. It holds no connection; use
// one for all goroutines.
type Table struct{ name pgtable.Name }

// New names the table: schema ("" = public) and name ("" = DefaultTable), of a-z 0-9 _.
func New(schema, table string) (*Table, error) {
	if schema == "" {
		schema = "public"
	}
	if table == "" {
		table = DefaultTable
	}
	n := pgtable.Name{Schema: schema, Table: table}
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("fence: %w", err)
	}
	return &Table{n}, nil
}

// Migrate makes the table, or brings it up to date. Several processes may at once.
func (t *Table) Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgtable.Migrate(ctx, pool, t.name, migrations, "reserved_at")
}

// Migrations are the table's as files of goose, for who has migrations of their own.
func (t *Table) Migrations() (fs.FS, error) { return pgtable.Render(t.name, migrations) }

// StaleError says that the key has been forgotten and is another operation's, which has
// committed. Nothing of this one may commit any more.
type StaleError struct {
	// ReservedAt is the other operation's.
	ReservedAt time.Time
}

// Error implements error.
func (e *StaleError) Error() string {
	return "fence: the key has been used for another operation since, which has committed; this one is over"
}

// Guard notes, in the caller's own transaction, that this attempt is the one that commits.
// Call it once, before the effect. Where an attempt of the operation has committed it
// returns that one's result, which is never nil then: roll back, and return it. While
// another attempt is in its transaction, Guard waits for that one's end. A transaction with
// synchronous_commit off gets it on: idemd must not hear of what a crash undoes.
//
// The error is a *StaleError, one of the grant's, or the database's; then the transaction
// must not commit.
func (t *Table) Guard(ctx context.Context, tx pgx.Tx, g *idem.Grant) (committed *idem.Result, err error) {
	if g == nil || g.Key == "" || g.Fence <= 0 || g.ReservedAt.IsZero() {
		return nil, errors.New("fence: the grant is not one of idem.Do: it has no key, fence or time of the first grant")
	}
	for range guardTries {
		tag, err := tx.Exec(ctx, t.claim(), g.Tenant, namespace(g), g.Key, g.ReservedAt, g.Attempt, g.Fence, t.mark(g))
		if err != nil {
			return nil, fmt.Errorf("fence: %w", err)
		}
		if tag.RowsAffected() == 1 {
			return nil, nil
		}
		committed, err := t.committed(ctx, tx, g)
		if committed != nil || err != nil {
			return committed, err
		}
	}
	return nil, errors.New("fence: the row is swept and written at the same time, over and over")
}

// guardTries bounds how often a row may be swept between looking and looking.
const guardTries = 5

// claim writes the row of an attempt, unless one of the same operation, or of a later one
// under the same key, has committed. It waits for an attempt that is under way.
func (t *Table) claim() string {
	return `WITH claimed AS (INSERT INTO ` + t.name.String() + ` AS f (tenant, namespace, key, reserved_at, attempt, fence, result, committed_at)
		VALUES ($1, $2, $3, $4, $5, $6, '', clock_timestamp())
		ON CONFLICT (tenant, namespace, key) DO UPDATE
		SET reserved_at = EXCLUDED.reserved_at, attempt = EXCLUDED.attempt, fence = EXCLUDED.fence,
			result = EXCLUDED.result, committed_at = EXCLUDED.committed_at
		WHERE f.reserved_at < EXCLUDED.reserved_at AND f.fence < EXCLUDED.fence
		RETURNING 1)
		SELECT set_config('` + guarded + `', concat(current_setting('` + guarded + `', true), $7::text), true),
			CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END
		FROM claimed`
}

// guarded is the setting in which a transaction remembers what it has guarded itself: its own
// row looks like that of an attempt that has committed.
const guarded = "idem.guarded"

// mark names the operation in there.
func (t *Table) mark(g *idem.Grant) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{t.name.String(), g.Tenant, namespace(g), g.Key}, "\x00")))
	return hex.EncodeToString(sum[:16]) + " "
}

// committed is the result of the attempt that has committed; nil if the row has gone.
func (t *Table) committed(ctx context.Context, tx pgx.Tx, g *idem.Grant) (*idem.Result, error) {
	var reservedAt time.Time
	var stored []byte
	var own string
	err := tx.QueryRow(ctx, `SELECT reserved_at, result, coalesce(current_setting('`+guarded+`', true), '') FROM `+t.name.String()+` WHERE tenant = $1 AND namespace = $2 AND key = $3`,
		g.Tenant, namespace(g), g.Key).Scan(&reservedAt, &stored, &own)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("fence: %w", err)
	case strings.Contains(own, t.mark(g)):
		return nil, errors.New("fence: Guard twice in one transaction: whoever comes second would take the first one's row for that of an attempt that has committed")
	case !reservedAt.Equal(g.ReservedAt):
		return nil, &StaleError{reservedAt}
	}
	result := &idem.Result{}
	if err := proto.Unmarshal(stored, result); err != nil {
		return nil, fmt.Errorf("fence: the stored result can't be read: %w", err)
	}
	return result, nil
}

// Store puts the result beside the row that Guard wrote, in the same transaction: later
// attempts are answered with it.
func (t *Table) Store(ctx context.Context, tx pgx.Tx, g *idem.Grant, result *idem.Result) error {
	stored, err := proto.Marshal(result)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	tag, err := tx.Exec(ctx, `UPDATE `+t.name.String()+` SET result = $6
		WHERE tenant = $1 AND namespace = $2 AND key = $3 AND reserved_at = $4 AND fence = $5`,
		g.Tenant, namespace(g), g.Key, g.ReservedAt, g.Fence, stored)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if tag.RowsAffected() != 1 {
		return errors.New("fence: Store without Guard in the same transaction")
	}
	return nil
}

// namespace is the grant's, under the one name by which the daemon knows it.
func namespace(g *idem.Grant) string {
	if g.Namespace == "" {
		return "default"
	}
	return g.Namespace
}

package inbox

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultTable is the table's name where none is given.
const DefaultTable = "idem_inbox"

// Table is where it stands which messages are done, and beside it how often others have
// failed. It holds no connection; use one for all goroutines.
type Table struct{ name, failures pgtable.Name }

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
		return nil, fmt.Errorf("inbox: %w", err)
	}
	return &Table{n, n.Beside("failures")}, nil
}

// Migrate makes the tables, or brings them up to date. Several processes may at once.
func (t *Table) Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgtable.Migrate(ctx, pool, t.name, migrations, "consumer")
}

// Migrations are the tables' as files of goose, for who has migrations of their own.
func (t *Table) Migrations() (fs.FS, error) { return pgtable.Render(t.name, migrations) }

// Execer runs a statement: a *pgxpool.Pool.
type Execer interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

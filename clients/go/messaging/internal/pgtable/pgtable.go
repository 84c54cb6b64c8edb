package pgtable

import (
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// Name is a table's name. It stands in every statement with its schema: what the session's
// search_path says does not matter.
type Name struct{ Schema, Table string }

// maxTableBytes leaves room for what the names of indexes and of the version's table add:
// PostgreSQL cuts names at 63 bytes.
const maxTableBytes = 40

// Check refuses a name that would have to be quoted, or would be cut.
func (n Name) Check() error {
	plain := regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)
	switch {
	case !plain.MatchString(n.Schema) || len(n.Schema) > 63:
		return fmt.Errorf("schema %q: 1 to 63 of a-z 0-9 _, no digit in front", n.Schema)
	case !plain.MatchString(n.Table) || len(n.Table) > maxTableBytes:
		return fmt.Errorf("table %q: 1 to %d of a-z 0-9 _, no digit in front", n.Table, maxTableBytes)
	}
	return nil
}

// String is the quoted name, for statements.
func (n Name) String() string { return pgx.Identifier{n.Schema, n.Table}.Sanitize() }

// Index is the quoted name of an index of the table, without the schema, as CREATE INDEX
// wants it.
func (n Name) Index(suffix string) string { return pgx.Identifier{n.Table + "_" + suffix}.Sanitize() }

// Beside is the name of a table that belongs to this one, migrated with it.
func (n Name) Beside(suffix string) Name { return Name{n.Schema, n.Table + "_" + suffix} }

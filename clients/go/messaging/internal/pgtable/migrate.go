package pgtable

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"testing/fstest"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrate brings a table up to date. Its migrations are goose files in which {{.}} stands
// for the quoted name, {{.Index "x"}} for that of an index and {{.Beside "x"}} for that of a
// table that belongs to it. Several processes may do so at once: they queue at a row of a
// table beside it. The schema is made if it is missing. The column is one that no other
// package's table has: two of them under one name would both be the first one's.
func Migrate(ctx context.Context, pool *pgxpool.Pool, n Name, files fs.FS, column string) error {
	rendered, err := Render(n, files)
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	if err := prepare(ctx, db, n); err != nil {
		return err
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(n.Schema+"."+n.Table+"_schema_lock"),
		lock.WithTableLockTimeout(200*time.Millisecond, 5*300),
	)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, rendered,
		goose.WithTableName(n.Schema+"."+n.Table+"_schema_version"), goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate %s (a table of that name, which is not ours? choose another name): %w", n, err)
	}
	if _, err := db.ExecContext(ctx, "SELECT "+column+" FROM "+n.String()+" LIMIT 0"); err != nil {
		return fmt.Errorf("migrate %s: it is there, and is another package's: choose another name: %w", n, err)
	}
	return nil
}

// prepare makes the schema, and refuses what goose can't name: it does not quote.
func prepare(ctx context.Context, db *sql.DB, n Name) error {
	var plain bool
	if err := db.QueryRowContext(ctx, "SELECT quote_ident($1) = $1", n.Schema).Scan(&plain); err != nil {
		return err
	}
	if !plain {
		return fmt.Errorf("schema %q is a reserved word of PostgreSQL: choose another name", n.Schema)
	}
	if err := createSchema(ctx, db, n.Schema); err != nil {
		return fmt.Errorf("create the schema %s: %w", n.Schema, err)
	}
	return nil
}

// Render puts a table's name into its migrations: files as goose wants them.
func Render(n Name, files fs.FS) (fstest.MapFS, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	rendered := fstest.MapFS{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		parsed, err := template.New(path).Parse(string(text))
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, n); err != nil {
			return err
		}
		rendered[entry.Name()] = &fstest.MapFile{Data: out.Bytes(), Mode: 0o444}
		return nil
	})
	return rendered, err
}

// createSchema asks first: who may not create schemas can still use one that is there. Of
// two who create it at once, one is refused and finds it.
func createSchema(ctx context.Context, db *sql.DB, schema string) error {
	var err error
	for range 2 {
		var there bool
		if err := db.QueryRowContext(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&there); err != nil {
			return err
		}
		if there {
			return nil
		}
		if _, err = db.ExecContext(ctx, "CREATE SCHEMA "+schema); err == nil {
			return nil
		}
	}
	return err
}

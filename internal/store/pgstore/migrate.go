package pgstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

const (
	versionTable = "idemd.schema_version"
	lockTable    = "idemd.schema_lock"
)

// Migrate brings the schema in the database up to date. Several daemons may do so at
// the same time, through a transaction pooler too: they queue at a row of a table.
func Migrate(ctx context.Context, dsn string) error {
	db, err := openSQL(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := createSchema(ctx, db); err != nil {
		return fmt.Errorf("create the schema idemd: %w", err)
	}
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	versions, err := schemaVersions(ctx, db, provider)
	if err != nil {
		return err
	}
	if versions.Database > versions.Program {
		return versions.judge()
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the schema idemd: %w", err)
	}
	return nil
}

func openSQL(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(lockTable),
		// Short steps: the one who waits is a daemon that wants to start.
		lock.WithTableLockTimeout(200*time.Millisecond, 5*300),
	)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable),
		goose.WithLocker(locker),
		goose.WithDisableGlobalRegistry(true),
	)
}

// createSchema asks first: who may not create schemas can still use one that an
// administrator has made. Of two who create it at once, one is refused and finds it.
func createSchema(ctx context.Context, db *sql.DB) error {
	var err error
	for range 2 {
		var there bool
		if err := db.QueryRowContext(ctx, "SELECT to_regnamespace('idemd') IS NOT NULL").Scan(&there); err != nil {
			return err
		}
		if there {
			return nil
		}
		if _, err = db.ExecContext(ctx, "CREATE SCHEMA idemd"); err == nil {
			return nil
		}
	}
	return err
}

// SchemaVersions are the version of the schema in the database (0 = there is none), the one
// that this program was made for, and that of the oldest program that the schema works with.
type SchemaVersions struct{ Database, Program, Oldest int64 }

// checkSchema refuses a schema that this program can't work with.
func checkSchema(ctx context.Context, dsn string) error {
	db, err := openSQL(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := newProvider(db)
	if err != nil {
		return err
	}
	versions, err := schemaVersions(ctx, db, provider)
	if err != nil {
		return err
	}
	return versions.judge()
}

// judge refuses a schema that this program can't work with.
func (v SchemaVersions) judge() error {
	switch {
	case v.Database == 0:
		return errors.New("the database holds no schema idemd yet: run `idemd migrate` once, or start with --migrate")
	case v.Database < v.Program:
		return fmt.Errorf("the schema idemd in the database has version %d, this program works with version %d: run `idemd migrate` once, or start with --migrate",
			v.Database, v.Program)
	case v.Database > v.Program && v.Program < v.Oldest:
		return fmt.Errorf("the schema idemd in the database has version %d, this program knows versions up to %d, and only programs of %d or newer work with it: run a newer program",
			v.Database, v.Program, v.Oldest)
	}
	return nil
}

// schemaVersions does not ask goose, which would make its table on the way.
func schemaVersions(ctx context.Context, db *sql.DB, provider *goose.Provider) (v SchemaVersions, err error) {
	for _, source := range provider.ListSources() {
		v.Program = max(v.Program, source.Version)
	}
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('"+versionTable+"') IS NOT NULL").Scan(&there); err != nil || !there {
		return v, err
	}
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(max(version_id), 0) FROM "+versionTable).Scan(&v.Database); err != nil || v.Database <= v.Program {
		return v, err
	}
	err = db.QueryRowContext(ctx, "SELECT idemd.oldest_program()").Scan(&v.Oldest)
	return v, err
}

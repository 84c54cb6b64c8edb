package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/pebblestore"
	"github.com/idemd/idemd/internal/store/pgstore"
)

// OpenStore opens the store that a configuration names. An embedded one that is opened
// readOnly must exist, and is not changed.
func OpenStore(ctx context.Context, s config.Store, readOnly bool, logger *slog.Logger) (store.Store, error) {
	dsn, err := dsnOf(s)
	if err != nil {
		return nil, err
	}
	if dsn != "" {
		return pgstore.Open(ctx, pgstore.Options{
			DSN: dsn, MaxConns: s.Connections, Migrate: s.Migrate && !readOnly, Logger: logger,
		})
	}
	return pebblestore.Open(ctx, pebblestore.Options{Dir: s.DataDir, ReadOnly: readOnly, Logger: logger})
}

// dsnOf is the connection string; empty = the store is the embedded one.
func dsnOf(s config.Store) (string, error) {
	if s.PostgresFile == "" {
		return s.Postgres, nil
	}
	text, err := config.ReadFile(s.PostgresFile)
	if err != nil {
		return "", fmt.Errorf("store.postgres.dsn_file: %w", err)
	}
	if dsn := strings.TrimSpace(string(text)); dsn != "" {
		return dsn, nil
	}
	return "", errors.New("store.postgres.dsn_file is empty")
}

func storeName(s config.Store) string {
	if s.Postgres != "" || s.PostgresFile != "" {
		return "postgres"
	}
	return s.DataDir
}

// writers is how many batches are under way at once. Two overlap one batch's reads or
// round trip with the last one's sync or commit. More make smaller batches: with 256
// callers on PostgreSQL, 3, 4 and 6 were slower than 2 and took more CPU time a call.
const writers = 2

// Migrate brings a PostgreSQL's schema up to date.
func Migrate(ctx context.Context, s config.Store) error {
	dsn, err := dsnOf(s)
	if err != nil {
		return err
	}
	if dsn == "" {
		return errors.New("no PostgreSQL is named")
	}
	return pgstore.Migrate(ctx, dsn)
}

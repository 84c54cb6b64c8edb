package daemon

import (
	"context"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/pebblestore"
	"github.com/idemd/idemd/internal/store/pgstore"
)

// OpenStore opens the store that the configuration names.
func OpenStore(ctx context.Context, c Config) (store.Store, error) {
	if c.Postgres != "" {
		return pgstore.Open(ctx, pgstore.Options{
			DSN: c.Postgres, MaxConns: c.PostgresConns, Migrate: c.Migrate, Logger: c.Logger,
		})
	}
	return pebblestore.Open(ctx, pebblestore.Options{Dir: c.DataDir, ReadOnly: c.ReadOnly, Logger: c.Logger})
}

func (c Config) storeName() string {
	if c.Postgres != "" {
		return "postgres"
	}
	return c.DataDir
}

// writers is how many batches are under way at once. Two overlap one batch's reads or
// round trip with the last one's sync or commit. More make smaller batches: with 256
// callers on PostgreSQL, 3, 4 and 6 were slower than 2 and took more CPU time a call.
const writers = 2

// Migrate brings a PostgreSQL's schema up to date.
func Migrate(ctx context.Context, dsn string) error { return pgstore.Migrate(ctx, dsn) }

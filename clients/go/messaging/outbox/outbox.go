package outbox

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/internal/outboxtable"
	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DefaultTable is the table's name where none is given.
const DefaultTable = "outbox"

// Order is which order of events holds: PerAggregate or None.
type Order int

const (
	// PerAggregate means that the events of one aggregate are sent one after the
	// other, in the order in which their transactions commit. Those of others don't wait for them. It costs
	// transactions that add events of one aggregate the time of each other: see Add.
	PerAggregate Order = iota + 1
	// None promises no order. It is roughly that of adding.
	None
)

// Config names an outbox. Its writers and its relays must be given the same.
type Config struct {
	// Schema and Table, of a-z 0-9 _: "" = public, and DefaultTable.
	Schema, Table string
	// Order must be chosen.
	Order Order
	// Notify wakes relays at the commit instead of at their next poll. PostgreSQL lets
	// transactions that notify commit one by one, in the whole database: leave it off
	// where many commit at once.
	Notify bool
}

// Outbox writes events to a table. It holds no connection; use one for all goroutines.
type Outbox struct {
	table  outboxtable.Table
	order  Order
	notify bool
}

// New checks the configuration.
func New(c Config) (*Outbox, error) {
	c = c.Defaulted()
	n := pgtable.Name{Schema: c.Schema, Table: c.Table}
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	if c.Order != PerAggregate && c.Order != None {
		return nil, errors.New("outbox: Order: choose PerAggregate or None")
	}
	return &Outbox{outboxtable.Table{Name: n}, c.Order, c.Notify}, nil
}

// Defaulted is the configuration with its names filled in.
func (c Config) Defaulted() Config {
	if c.Schema == "" {
		c.Schema = "public"
	}
	if c.Table == "" {
		c.Table = DefaultTable
	}
	return c
}

// Migrate makes the table, or brings it up to date. Several processes may at once.
func (o *Outbox) Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgtable.Migrate(ctx, pool, o.table.Name, migrations, "aggregatetype")
}

// Migrations are the table's as files of goose, for who has migrations of their own.
func (o *Outbox) Migrations() (fs.FS, error) { return pgtable.Render(o.table.Name, migrations) }

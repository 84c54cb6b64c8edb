package orders

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/fence"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

const schema = "orders"

// Outbox is where events are written, and the relay reads them. The events of different
// orders tell nothing of each other, so no order of theirs has to hold.
func Outbox() outbox.Config {
	return outbox.Config{Schema: schema, Order: outbox.None, Notify: true}
}

// Migrate makes the tables, where they are missing. No unique key on the reference helps
// out: an order that is placed twice is to be seen twice.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	const tables = `
		CREATE SCHEMA IF NOT EXISTS orders;
		CREATE TABLE IF NOT EXISTS orders.orders (
			number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			reference text NOT NULL,
			article   text NOT NULL,
			quantity  bigint NOT NULL,
			mail_to   text NOT NULL
		)`
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	events, err := outbox.New(Outbox())
	if err != nil {
		return err
	}
	attempts, err := fence.New(schema, "")
	if err != nil {
		return err
	}
	if err := events.Migrate(ctx, pool); err != nil {
		return err
	}
	return attempts.Migrate(ctx, pool)
}

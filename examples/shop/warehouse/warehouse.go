package warehouse

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
	"github.com/idemd/idemd/examples/shop/events"
)

const (
	schema = "warehouse"
	// consumer names the warehouse in its inbox.
	consumer = "warehouse"
	// InStock is how much of each article there is at first.
	InStock = 1_000_000
)

// BrokenInbox breaks the warehouse: each delivery counts.
const BrokenInbox = "no-inbox"

// Articles are what there is to be had.
func Articles() []string { return []string{"tea", "coffee", "cocoa", "sugar", "milk"} }

// Migrate makes the tables, where they are missing. No unique key on the order's number
// helps out: goods that are reserved twice are to be seen twice.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	const tables = `
		CREATE SCHEMA IF NOT EXISTS warehouse;
		CREATE TABLE IF NOT EXISTS warehouse.stock (article text PRIMARY KEY, free bigint NOT NULL CHECK (free >= 0));
		CREATE TABLE IF NOT EXISTS warehouse.reservations (
			order_number bigint NOT NULL,
			article      text NOT NULL,
			quantity     bigint NOT NULL
		)`
	if _, err := pool.Exec(ctx, tables); err != nil {
		return err
	}
	const goods = "INSERT INTO warehouse.stock SELECT article, $2 FROM unnest($1::text[]) AS article ON CONFLICT DO NOTHING"
	if _, err := pool.Exec(ctx, goods, Articles(), InStock); err != nil {
		return err
	}
	marks, err := inbox.New(schema, "")
	if err != nil {
		return err
	}
	return marks.Migrate(ctx, pool)
}

// Route adds the warehouse to a router. broken is BrokenInbox or empty.
func Route(router *message.Router, pool *pgxpool.Pool, subscriber message.Subscriber, publisher message.Publisher, broken string) error {
	if broken == BrokenInbox {
		router.AddConsumerHandler("reserve", events.Placed, subscriber, func(msg *message.Message) error {
			return pgx.BeginFunc(msg.Context(), pool, func(tx pgx.Tx) error { return reserve(msg.Context(), tx, msg.Payload) })
		})
		return nil
	}
	marks, err := inbox.New(schema, "")
	if err != nil {
		return err
	}
	once, err := consume.SQL(pool, marks, consume.Options{Consumer: consumer, Publisher: publisher, DeadLetter: events.OrdersDead})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("reserve", events.Placed, subscriber, func(msg *message.Message) error {
		tx, _ := consume.Tx(msg.Context())
		return reserve(msg.Context(), tx, msg.Payload)
	}).AddMiddleware(once)
	return nil
}

// reserve takes the goods of an order out of the free stock.
func reserve(ctx context.Context, tx pgx.Tx, payload []byte) error {
	order, err := events.Read(payload)
	if err != nil {
		return err
	}
	taken, err := tx.Exec(ctx, "UPDATE warehouse.stock SET free = free - $2 WHERE article = $1 AND free >= $2", order.Article, order.Quantity)
	if err != nil {
		return err
	}
	if taken.RowsAffected() == 0 {
		return fmt.Errorf("order %d: there is not enough of its article", order.Number)
	}
	_, err = tx.Exec(ctx, "INSERT INTO warehouse.reservations VALUES ($1, $2, $3)", order.Number, order.Article, order.Quantity)
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	pgxv5 "github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What an application does without a relay: a table of its own, with no more columns and
// indexes than it takes.
func makePlain(ctx context.Context, b *outboxBench, table string, d drain) error {
	_, err := b.pool.Exec(ctx, fmt.Sprintf(`CREATE TABLE %[1]s (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL,
			aggregatetype text NOT NULL, aggregateid text NOT NULL, payload bytea NOT NULL, sent_at timestamptz);
		CREATE INDEX ON %[1]s (position) WHERE sent_at IS NULL;
		INSERT INTO %[1]s (id, aggregatetype, aggregateid, payload)
		SELECT gen_random_uuid(), 'order', n::text, convert_to(repeat('x', %[2]d), 'UTF8') FROM generate_series(1, %[3]d) n`, table, outboxPayload, d.events))
	return err
}

// drainPlain runs loops until no row is left.
func drainPlain(ctx context.Context, b *outboxBench, table string, loops int) error {
	publisher, err := b.publisher()
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	config, err := pgxpool.ParseConfig(b.database.DSN("postgres"))
	if err != nil {
		return err
	}
	config.MaxConns = int32(loops)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	var running sync.WaitGroup
	failed := make(chan error, loops)
	for range loops {
		running.Go(func() {
			for {
				switch err := plainSend(ctx, pool, table, publisher); {
				case errors.Is(err, pgxv5.ErrNoRows):
					return
				case err != nil:
					failed <- err
					return
				}
			}
		})
	}
	running.Wait()
	close(failed)
	return <-failed
}

// plainSend sends one row; pgxv5.ErrNoRows where there is none.
func plainSend(ctx context.Context, pool *pgxpool.Pool, table string, publisher message.Publisher) error {
	return pgxv5.BeginFunc(ctx, pool, func(tx pgxv5.Tx) error {
		var position int64
		var id, kind, aggregate string
		var payload []byte
		err := tx.QueryRow(ctx, `SELECT position, id::text, aggregatetype, aggregateid, payload FROM `+table+
			` WHERE sent_at IS NULL ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED`).Scan(&position, &id, &kind, &aggregate, &payload)
		if err != nil {
			return err
		}
		m := message.NewMessage(id, payload)
		m.Metadata["aggregate_id"] = aggregate
		if err := publisher.Publish("outbox.event."+kind, m); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE `+table+` SET sent_at = clock_timestamp() WHERE position = $1`, position)
		return err
	})
}

// countdown ends something when as many messages as expected are acknowledged.
type countdown struct {
	message.Publisher
	left *atomic.Int64
	end  func()
}

func newCountdown(n int) *atomic.Int64 {
	left := new(atomic.Int64)
	left.Store(int64(n))
	return left
}

// Publish implements message.Publisher.
func (c *countdown) Publish(topic string, messages ...*message.Message) error {
	err := c.Publisher.Publish(topic, messages...)
	if err == nil && c.left.Add(-int64(len(messages))) == 0 {
		c.end()
	}
	return err
}

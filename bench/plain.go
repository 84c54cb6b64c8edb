package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What an application does without a daemon: one insert and one update on a table of its
// own, each committed by itself and durable before it is answered. It has none of the
// indexes that finding expired or unresolved keys would take.
const (
	plainSchema = `CREATE TABLE keys (
	tenant text COLLATE "C" NOT NULL, namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
	token bytea NOT NULL, state smallint NOT NULL,
	reserved_at timestamptz NOT NULL, locked_until timestamptz NOT NULL, finished_at timestamptz, expires_at timestamptz,
	status integer, content_type text, body bytea, decision_id text,
	PRIMARY KEY (tenant, namespace, key))`
	plainReserve = `INSERT INTO keys (tenant, namespace, key, token, state, reserved_at, locked_until)
	VALUES ($1, $2, $3, $4, 1, clock_timestamp(), clock_timestamp() + $5::interval) ON CONFLICT DO NOTHING`
	plainComplete = `UPDATE keys SET state = 2, finished_at = clock_timestamp(), expires_at = clock_timestamp() + $5::interval,
	status = $6, content_type = $7, body = $8, decision_id = $9
	WHERE tenant = $1 AND namespace = $2 AND key = $3 AND token = $4 AND state = 1`
)

// plainClient is a pool of connections with those two statements, prepared.
type plainClient struct {
	pool *pgxpool.Pool
	body []byte
}

func connectPlain(ctx context.Context, dsn string, conns int) (*plainClient, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns = int32(conns), int32(conns)
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "on"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &plainClient{pool: pool, body: body()}, nil
}

func (c *plainClient) close() { c.pool.Close() }

// cycle implements client.
func (c *plainClient) cycle(ctx context.Context, op operation) error {
	if err := c.exec(ctx, plainReserve, tenant, namespace, op.key, op.token, lease); err != nil {
		return err
	}
	return c.exec(ctx, plainComplete, tenant, namespace, op.key, op.token, retention,
		status, contentType, c.body, decisionID)
}

func (c *plainClient) exec(ctx context.Context, statement string, args ...any) error {
	tag, err := c.pool.Exec(ctx, statement, args...)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%d rows were written instead of one", tag.RowsAffected())
	}
	return err
}

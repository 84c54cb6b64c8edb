package fence_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/fence"
)

// A Transactional operation: whatever lapses, is taken over or loses its COMMIT's reply, one
// order is placed, and every caller gets its number.
func Example() {
	var client *idem.Client // idem.New(…)
	var pool *pgxpool.Pool  // pgxpool.New(…)

	attempts, err := fence.New("shop", "")
	if err != nil {
		panic(err)
	}
	place := func(ctx context.Context, key string, request []byte) (*idem.Answer, error) {
		op := idem.Operation{Key: key, Mode: idem.Transactional, Fingerprint: idem.SHA256("order-v1", request)}
		return client.Do(ctx, op, func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
			return attempts.Run(ctx, pool, g, func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
				var number string
				err := tx.QueryRow(ctx, "INSERT INTO orders (request) VALUES ($1) RETURNING number", request).Scan(&number)
				return &idem.Result{Status: 201, Body: []byte(number)}, err
			})
		})
	}
	_ = place
}

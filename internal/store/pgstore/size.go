package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

var _ store.Sizer = (*Store)(nil)

// sizeStatement adds up what can be large, and rowBytes for each row beside it. The length
// of what lies outside the row is read without it. Its condition is on the namespaces: where
// only one is meant, nothing behind it is looked at.
func sizeStatement(condition string) string {
	return `WITH page AS (
    SELECT r.tenant, r.namespace, r.key, $5::bigint + octet_length(r.key) + COALESCE(octet_length(r.checkpoint), 0)
        + COALESCE(octet_length(r.result), 0) + COALESCE(octet_length(r.history), 0) + COALESCE(octet_length(r.spent), 0) AS bytes
    FROM idemd.reservations AS r
    WHERE r.tenant = $1::text AND ` + condition + `
    ORDER BY r.tenant, r.namespace, r.key LIMIT $4::bigint
)
SELECT COALESCE(sum(p.bytes), 0)::bigint, count(*),
       COALESCE((array_agg(p.namespace ORDER BY p.namespace DESC, p.key DESC))[1], ''),
       COALESCE((array_agg(p.key ORDER BY p.namespace DESC, p.key DESC))[1], '')
FROM page AS p`
}

const (
	ofTenant    = "(r.namespace, r.key) > ($2::text, $3::text)"
	ofNamespace = "r.namespace = $2::text AND r.key > $3::text"
	rowBytes    = 256
)

// Size implements store.Sizer.
func (s *Store) Size(ctx context.Context, scope store.Scope, after reservation.Address, limit int) (store.Size, error) {
	statement, namespace := sizeStatement(ofTenant), after.Namespace
	if scope.Namespace != "" {
		statement, namespace = sizeStatement(ofNamespace), scope.Namespace
	}
	return reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (size store.Size, err error) {
		batch := s.beginning()
		batch.Queue(statement, scope.Tenant, namespace, after.Key, limit, rowBytes).QueryRow(func(row pgx.Row) error {
			var n int
			size.Last.Tenant = scope.Tenant
			err := row.Scan(&size.Bytes, &n, &size.Last.Namespace, &size.Last.Key)
			size.More = n == limit
			return err
		})
		batch.Queue("COMMIT")
		return size, conn.SendBatch(ctx, batch).Close()
	})
}

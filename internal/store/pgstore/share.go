package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/store"
)

var _ store.Sharer = (*Store)(nil)

const (
	tellStatement = `INSERT INTO idemd.demand AS d (daemon, tenant, namespace, asked, at)
SELECT $1::text, u.tenant, u.namespace, u.asked, idemd.clock()
FROM unnest($2::text[], $3::text[], $4::float8[]) AS u(tenant, namespace, asked)
ON CONFLICT (daemon, tenant, namespace) DO UPDATE SET asked = EXCLUDED.asked, at = EXCLUDED.at`

	// Daemons that are gone are forgotten by whoever is there; each row by one of them.
	forgetStatement = `DELETE FROM idemd.demand WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM idemd.demand AS d WHERE d.at < idemd.clock() - $1::bigint LIMIT 1000 FOR UPDATE SKIP LOCKED))`

	hearStatement = `SELECT d.tenant, d.namespace, count(*), sum(d.asked) FROM idemd.demand AS d
WHERE d.at >= idemd.clock() - $1::bigint GROUP BY d.tenant, d.namespace`

	// forgetAfter is long after a daemon has lost its share.
	forgetAfter = time.Minute
)

// Share implements store.Sharer.
func (s *Store) Share(ctx context.Context, daemon string, demand map[store.Scope]float64) (store.Demand, error) {
	tenants, namespaces, asked := []string{""}, []string{""}, []float64{0} // the daemon is there
	for scope, rate := range demand {
		tenants, namespaces, asked = append(tenants, scope.Tenant), append(namespaces, scope.Namespace), append(asked, rate)
	}
	return reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (all store.Demand, err error) {
		batch := s.beginning()
		batch.Queue("SELECT set_config('synchronous_commit', 'off', true)")
		batch.Queue(tellStatement, daemon, tenants, namespaces, asked)
		batch.Queue(forgetStatement, forgetAfter.Microseconds())
		batch.Queue(hearStatement, (store.ShareWindow * time.Second).Microseconds()).Query(func(rows pgx.Rows) error {
			all, err = scanDemand(rows)
			return err
		})
		batch.Queue("COMMIT")
		return all, conn.SendBatch(ctx, batch).Close()
	})
}

func scanDemand(rows pgx.Rows) (store.Demand, error) {
	all := store.Demand{Scopes: make(map[store.Scope]float64)}
	for rows.Next() {
		var scope store.Scope
		var daemons int
		var asked float64
		if err := rows.Scan(&scope.Tenant, &scope.Namespace, &daemons, &asked); err != nil {
			return all, err
		}
		if scope == (store.Scope{}) {
			all.Daemons = daemons
			continue
		}
		all.Scopes[scope] = asked
	}
	return all, rows.Err()
}

package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Check implements store.Store. Whether indexes agree with the table is PostgreSQL's
// own business: pg_amcheck tells.
func (s *Store) Check(ctx context.Context) (store.Report, error) {
	var report store.Report
	for part := (span{limit: store.MaxBatch}); ; {
		read, err := s.step(ctx, s.pool, part)
		if damaged(err) {
			read, err = s.around(ctx, part, fmt.Errorf("the database can't read the row: %s", describe(err)))
		}
		if err != nil {
			return report, store.Unavailable()
		}
		for _, row := range read.all {
			part.after = row.address
			report.Records++
			damage := row.damage
			if damage == nil {
				damage = row.record.Check()
			}
			if damage != nil {
				report.Add(row.address, damage.Error())
			}
		}
		if !read.more {
			return report, s.checkActs(ctx, &report)
		}
	}
}

// checkActs looks for gaps among the acts of operators.
func (s *Store) checkActs(ctx context.Context, report *store.Report) error {
	type ids struct{ first, last, head, count int64 }
	read, err := reading(ctx, s, s.side, func(ctx context.Context, conn *pgx.Conn) (i ids, err error) {
		err = conn.QueryRow(ctx, `SELECT COALESCE(min(a.id), 1), COALESCE(max(a.id), 0), count(*), (SELECT max(h.last) FROM idemd.audit_head AS h)
FROM idemd.audit AS a`).Scan(&i.first, &i.last, &i.count, &i.head)
		return i, err
	})
	if err != nil {
		return err
	}
	if read.first != 1 || read.last != read.head || read.count != read.head {
		report.Add(reservation.Address{}, fmt.Sprintf("acts of operators are missing: %d were given ids, there are %d, from %d to %d",
			read.head, read.count, read.first, read.last))
	}
	return nil
}

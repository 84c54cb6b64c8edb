package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Check implements store.Store. Whether indexes agree with the table is PostgreSQL's
// own business: pg_amcheck tells.
func (s *Store) Check(ctx context.Context) (store.Report, error) {
	var report store.Report
	query := store.Query{Limit: store.MaxBatch}
	for {
		last, err := s.checkPage(ctx, query, &report)
		switch {
		case damaged(err) && query.Limit > 1:
			// Something on this page can't be read: row by row from here.
			query.Limit = 1
			continue
		case damaged(err):
			last, err = s.nameUnreadable(ctx, query, err, &report)
			query.Limit = store.MaxBatch
		}
		if err != nil {
			return report, store.Unavailable()
		}
		if last == (reservation.Address{}) {
			return report, nil
		}
		query.After = last
	}
}

// nameUnreadable reports the row behind query.After, which the database can't read, by
// its key, which it can.
func (s *Store) nameUnreadable(ctx context.Context, query store.Query, damage error, report *store.Report) (reservation.Address, error) {
	address, err := readingDamage(ctx, s, s.pool, func(ctx context.Context, conn *pgx.Conn) (a reservation.Address, err error) {
		err = conn.QueryRow(ctx, `SELECT tenant, namespace, key FROM idemd.reservations
WHERE (tenant, namespace, key) > ($1::text, $2::text, $3::text) ORDER BY tenant, namespace, key LIMIT 1`,
			query.After.Tenant, query.After.Namespace, query.After.Key).Scan(&a.Tenant, &a.Namespace, &a.Key)
		return a, err
	})
	if err != nil {
		return address, err
	}
	report.Records++
	report.Add(address, "the database can't read the row: "+describe(damage))
	return address, nil
}

// checkPage checks one page and returns where it ended; zero = there was none. The
// page's findings are added only once all of it was read, for it may be read twice.
func (s *Store) checkPage(ctx context.Context, query store.Query, report *store.Report) (last reservation.Address, err error) {
	type page struct {
		last    reservation.Address
		records int64
		faults  []store.Fault
	}
	read, err := readingDamage(ctx, s, s.pool, func(ctx context.Context, conn *pgx.Conn) (p page, err error) {
		err = s.page(ctx, conn, query, func(address reservation.Address, rec *reservation.Record, damage error) {
			p.last = address
			p.records++
			if damage == nil {
				damage = rec.Check()
			}
			if damage != nil {
				p.faults = append(p.faults, store.Fault{Address: address, Problem: damage.Error()})
			}
		})
		return p, err
	})
	if err != nil {
		return last, err
	}
	report.Records += read.records
	for _, fault := range read.faults {
		report.Add(fault.Address, fault.Problem)
	}
	return read.last, nil
}

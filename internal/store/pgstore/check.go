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
		if err != nil || last == (reservation.Address{}) {
			return report, err
		}
		query.After = last
	}
}

// checkPage checks one page and returns where it ended; zero = there was none. The
// page's findings are added only once all of it was read, for it may be read twice.
func (s *Store) checkPage(ctx context.Context, query store.Query, report *store.Report) (last reservation.Address, err error) {
	type page struct {
		last    reservation.Address
		records int64
		faults  []store.Fault
	}
	read, err := reading(ctx, s, s.pool, func(ctx context.Context, conn *pgx.Conn) (p page, err error) {
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

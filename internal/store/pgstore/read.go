package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/internal/store"
)

// reading runs a read-only pipeline and turns its error into the interface's. It is
// tried once more: a connection may have died while nobody used it, and a statement
// may have been planned for the schema of before a migration.
func reading[R any](ctx context.Context, s *Store, pool *pgxpool.Pool, read func(context.Context, *pgx.Conn) (R, error)) (R, error) {
	result, err := readingDamage(ctx, s, pool, read)
	if err != nil {
		var none R
		return none, store.Unavailable()
	}
	return result, nil
}

// readingDamage is reading with the database's own error, for who has an answer to
// damage.
func readingDamage[R any](ctx context.Context, s *Store, pool *pgxpool.Pool, read func(context.Context, *pgx.Conn) (R, error)) (R, error) {
	return detached(ctx, s, func() (result R, err error) {
		for range 2 {
			err = s.on(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
				result, err = read(ctx, conn)
				return s.finish(ctx, conn, err)
			})
			if !damaged(err) {
				s.note(ctx, err)
			}
			if err == nil || ctx.Err() != nil || remedyFor(err) == giveUp || damaged(err) {
				break
			}
		}
		return result, err
	})
}

// Get implements store.Store. What the database can't read hides no other: the wanted are
// parted until it stands alone.
func (s *Store) Get(ctx context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	snapshot, err := s.changed(ctx, wanted)
	switch {
	case err == nil:
		return snapshot, nil
	case !damaged(err):
		return store.Snapshot{}, store.Unavailable()
	case len(wanted) == 1:
		snapshot.Found = []store.Found{{Unreadable: true}}
		return snapshot, nil
	}
	half := len(wanted) / 2
	first, err := s.Get(ctx, wanted[:half])
	if err != nil {
		return first, err
	}
	second, err := s.Get(ctx, wanted[half:])
	for _, found := range second.Found {
		found.Index += half
		first.Found = append(first.Found, found)
	}
	return first, err
}

// changed reads what is not as it was last seen. The clock is read first: see
// transaction.hold; it is told also where the rows can't be read.
func (s *Store) changed(ctx context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	var a addresses
	versions, places := make([]int64, len(wanted)), make([]pgtype.TID, len(wanted))
	for i, w := range wanted {
		a.add(i, w.Address)
		versions[i], places[i] = w.Seen.Version, tupleID(w.Seen.Place)
	}
	return readingDamage(ctx, s, s.pool, func(ctx context.Context, conn *pgx.Conn) (store.Snapshot, error) {
		var snapshot store.Snapshot
		batch := s.beginning()
		batch.Queue(s.statements.clock).QueryRow(func(row pgx.Row) error { return row.Scan((*int64)(&snapshot.Now)) })
		batch.Queue(s.statements.changed, a.tenant, a.namespace, a.key, versions, places).Query(func(rows pgx.Rows) (err error) {
			snapshot.Found, err = scanChanged(rows)
			return err
		})
		batch.Queue("COMMIT")
		err := conn.SendBatch(ctx, batch).Close()
		return snapshot, err
	})
}

// scanChanged reads the answer to a changed statement.
func scanChanged(rows pgx.Rows) (all []store.Found, err error) {
	var number int64
	var exists bool
	var place pgtype.TID
	var r row
	targets := append([]any{&number, &exists, &place}, r.targets()...)
	for rows.Next() {
		r = row{}
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		f := store.Found{Index: int(number - 1)}
		if exists {
			if f.Record, err = r.decode(); err != nil {
				f.Record, f.Unreadable = nil, true
			}
			f.Seen = store.Seen{Version: r.version, Place: placeOf(place)}
		}
		all = append(all, f)
	}
	return all, rows.Err()
}

// A row's place in the table is a block and an offset in it; here both are one number.
// (0,0) is no row's.
func tupleID(place uint64) pgtype.TID {
	return pgtype.TID{BlockNumber: uint32(place >> 16), OffsetNumber: uint16(place), Valid: true}
}

func placeOf(id pgtype.TID) uint64 { return uint64(id.BlockNumber)<<16 | uint64(id.OffsetNumber) }

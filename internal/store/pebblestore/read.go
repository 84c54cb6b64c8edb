package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// view is the store at one moment.
type view struct {
	*pebble.Snapshot
	now reservation.Time
	// swept and stripped are where the next sweeps begin.
	swept, stripped []byte
	// link must be done before what was seen is told.
	link *link
}

// look takes a view. It waits for the lock, but does not hold it while the view is
// read.
func (s *Store) look(ctx context.Context) (*view, error) {
	if err := s.acquire(ctx); err != nil {
		return nil, err
	}
	var done bool
	defer s.release(&done)
	w := &writes{batch: s.db.NewBatch()}
	now := s.tick(w)
	l := s.commit(w)
	v := &view{Snapshot: s.db.NewSnapshot(), now: now, swept: s.swept, stripped: s.stripped, link: l}
	done = true
	return v, nil
}

// read runs a function on a view and returns when what it saw is on disk.
func (s *Store) read(ctx context.Context, do func(*view) error) error {
	if err := s.enter(ctx); err != nil {
		return store.Unavailable()
	}
	defer s.leave()
	v, err := s.look(ctx)
	if err != nil {
		return store.Unavailable()
	}
	err = do(v)
	err = errors.Join(err, v.Close())
	if err != nil && s.interrupted(ctx) == nil {
		s.logger.Error("the store can't be read", "error", err)
	}
	if err != nil || s.wait(ctx, v.link) != nil {
		return store.Unavailable()
	}
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	var snapshot store.Snapshot
	err := s.read(ctx, func(v *view) error {
		snapshot.Now = v.now
		for i, w := range wanted {
			rec, err := readRecord(v, recordKey(w.Address))
			found := store.Found{Index: i, Record: rec, Unreadable: errors.Is(err, errUnreadable)}
			if err != nil && !found.Unreadable {
				return err
			}
			if rec != nil {
				found.Seen.Version = rec.Version
			}
			if rec == nil || found.Seen != w.Seen {
				snapshot.Found = append(snapshot.Found, found)
			}
		}
		return nil
	})
	if err != nil {
		return store.Snapshot{}, err
	}
	return snapshot, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, query store.Query) (store.Page, error) {
	var page store.Page
	err := s.read(ctx, func(v *view) error {
		page.Now = v.now
		return s.scan(ctx, v, querySpan(query), func(key, value []byte) (bool, error) {
			entry, size, err := listed(v, key, value)
			if err != nil {
				return false, err
			}
			return page.Add(query, entry.Address, entry.Record, size), nil
		})
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// querySpan holds what a query selects, in one range: of the records, or of the open
// index.
func querySpan(query store.Query) span {
	prefix := byte(prefixRecord)
	if query.OpenOnly() {
		prefix = prefixOpen
	}
	keys := tenantSpan(prefix, query.Tenant, query.Namespace)
	if query.Tenant != "" && query.Namespace != "" && query.KeyPrefix != "" {
		keys.lower = append(keys.lower, query.KeyPrefix...)
		keys.upper = bytes.Clone(keys.lower)
		keys.upper[len(keys.upper)-1]++ // keys are ASCII: there is no carry
	}
	if query.After != (reservation.Address{}) {
		if next := after(addressKey(prefix, query.After)); bytes.Compare(next, keys.lower) > 0 {
			keys.lower = next
		}
	}
	return keys
}

// listed is the entry that a key of either range stands for, and the size of its record.
func listed(v *view, key, value []byte) (entry store.Entry, size int, err error) {
	if entry.Address, err = parseAddressKey(key); err != nil {
		return entry, 0, err
	}
	if key[0] != prefixRecord {
		var closer io.Closer
		value, closer, err = v.Get(recordKey(entry.Address))
		switch {
		case errors.Is(err, pebble.ErrNotFound):
			return entry, 0, nil // as one that can't be decoded: Check tells the two apart
		case err != nil:
			return entry, 0, err
		}
		defer closer.Close()
	}
	entry.Record, err = decode(value)
	if errors.Is(err, errUnreadable) {
		err = nil
	}
	return entry, len(value), err
}

// Stats implements store.Store. What has not finished is counted one by one, through
// the open index; the finished are as many as the expiry index has entries, which is
// kept count of.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var stats store.Stats
	err := s.read(ctx, func(v *view) error {
		stats.Now = v.now
		finished, err := readMeta(v, metaFinished)
		if err != nil {
			return err
		}
		err = s.scan(ctx, v, prefixSpan(prefixOpen), func(key, value []byte) (bool, error) {
			entry, _, err := listed(v, key, value)
			if entry.Record != nil {
				stats.Count(entry.Address, entry.Record)
			}
			return true, err
		})
		stats.Finished = int64(finished)
		return err
	})
	if err != nil {
		return store.Stats{}, err
	}
	return stats, nil
}

// scan calls do for each entry of a span, until it returns false, the call is
// interrupted, or an entry can't be read.
func (s *Store) scan(ctx context.Context, from pebble.Reader, keys span, do func(key, value []byte) (more bool, err error)) error {
	it, err := from.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: keys.lower, UpperBound: keys.upper})
	if err != nil {
		return err
	}
	for valid := it.First(); valid; valid = it.Next() {
		if err = s.interrupted(ctx); err != nil {
			break
		}
		var value []byte
		if value, err = it.ValueAndErr(); err != nil {
			break
		}
		var more bool
		if more, err = do(it.Key(), value); err != nil || !more {
			break
		}
	}
	return errors.Join(err, it.Close())
}

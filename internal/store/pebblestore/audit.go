package pebblestore

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// Audit implements store.Store.
func (s *Store) Audit(ctx context.Context, query store.AuditQuery) (store.AuditPage, error) {
	var page store.AuditPage
	keys := prefixSpan(prefixAudit)
	if query.Below != 0 {
		keys.upper = auditKey(query.Below)
	}
	err := s.read(ctx, func(v *view) error {
		return s.backwards(ctx, v, keys, func(examined int, key, value []byte) bool {
			id, err := parseAuditKey(key)
			if err != nil {
				return true // Check tells
			}
			entry, err := codec.DecodeAudit(id, value)
			if err != nil {
				s.logger.Error("an act of an operator can't be decoded; run idemd check", "id", id)
				return true
			}
			return page.Add(query, examined, entry)
		})
	})
	if err != nil {
		return store.AuditPage{}, err
	}
	return page, nil
}

// backwards calls do for each entry of a span, the last one first, until it returns false.
func (s *Store) backwards(ctx context.Context, from pebble.Reader, keys span, do func(examined int, key, value []byte) (more bool)) error {
	it, err := from.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: keys.lower, UpperBound: keys.upper})
	if err != nil {
		return err
	}
	examined := 0
	for valid := it.Last(); valid; valid = it.Prev() {
		if err = s.interrupted(ctx); err != nil {
			break
		}
		var value []byte
		if value, err = it.ValueAndErr(); err != nil {
			break
		}
		if examined++; !do(examined, it.Key(), value) {
			break
		}
	}
	return errors.Join(err, it.Close())
}

// lastAudited is the id of the latest act of an operator; zero = there is none.
func lastAudited(from pebble.Reader) (id int64, err error) {
	keys := prefixSpan(prefixAudit)
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: keys.lower, UpperBound: keys.upper})
	if err != nil {
		return 0, err
	}
	if it.Last() {
		id, err = parseAuditKey(it.Key())
	}
	return id, errors.Join(err, it.Close())
}

package pebblestore

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

var _ store.Sizer = (*Store)(nil)

// Size implements store.Sizer. Values are not read.
func (s *Store) Size(ctx context.Context, scope store.Scope, after reservation.Address, limit int) (size store.Size, err error) {
	lower := append([]byte{prefixRecord}, scope.Tenant...)
	if scope.Namespace != "" {
		lower = append(append(lower, separator), scope.Namespace...)
	}
	bounds := &pebble.IterOptions{LowerBound: append(lower, separator), UpperBound: append(append([]byte{}, lower...), separator+1)}
	if after != (reservation.Address{}) {
		bounds.LowerBound = append(recordKey(after), 0) // the next key there can be
	}
	err = s.read(ctx, func(v *view) error {
		iter, err := v.NewIter(bounds)
		if err != nil {
			return err
		}
		n := 0
		for valid := iter.First(); valid && n < limit; valid = iter.Next() {
			value := iter.LazyValue()
			size.Bytes += int64(len(iter.Key()) + value.Len())
			if size.Last, err = parseAddressKey(iter.Key()); err != nil {
				break
			}
			n++
		}
		size.More = iter.Valid()
		return errors.Join(err, iter.Error(), iter.Close())
	})
	return size, err
}

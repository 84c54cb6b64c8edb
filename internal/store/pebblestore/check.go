package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Check implements store.Store. It reads a view: writers go on meanwhile.
func (s *Store) Check(ctx context.Context) (store.Report, error) {
	var report store.Report
	err := s.read(ctx, func(v *view) error {
		c := &checker{view: v, report: &report}
		err := s.scan(ctx, v, span{}, c.entry)
		return errors.Join(err, c.count())
	})
	if err != nil {
		return store.Report{}, err
	}
	return report, nil
}

// checker looks at each entry of a view, whatever its key, so that nothing lies in
// the store that nobody reads.
type checker struct {
	view   *view
	report *store.Report
	expiry int64 // entries of the expiry index
}

func (c *checker) entry(key, value []byte) (more bool, err error) {
	switch key[0] {
	case prefixRecord:
		err = c.record(key, value)
	case prefixOpen, prefixExpiry:
		err = c.index(key)
	case prefixMeta:
		c.meta(key, value)
	default:
		c.report.Add(reservation.Address{}, fmt.Sprintf("an entry of an unknown kind, 0x%02x", key[0]))
	}
	return err == nil, err
}

// record checks a record and that its index entry is there.
func (c *checker) record(key, value []byte) error {
	c.report.Records++
	address, err := parseAddressKey(key)
	if err != nil {
		c.report.Add(address, "a record under a malformed key")
		return nil
	}
	rec, err := decode(value)
	if err != nil {
		c.report.Add(address, err.Error())
		return nil
	}
	if err := rec.Check(); err != nil {
		c.report.Add(address, err.Error())
	}
	index := indexKey(address, rec)
	found, err := c.has(index)
	if err == nil && !found {
		c.report.Add(address, fmt.Sprintf("the record has no entry in the index %q", index[0]))
	}
	return err
}

// index checks that an index entry is the one that its record has. Together with
// record this leaves exactly one entry for each record.
func (c *checker) index(key []byte) error {
	address, err := indexed(key)
	if err != nil {
		c.report.Add(address, fmt.Sprintf("a malformed entry in the index %q", key[0]))
		return nil
	}
	if key[0] == prefixExpiry {
		c.expiry++
	}
	rec, err := readRecord(c.view, recordKey(address))
	switch {
	case errors.Is(err, errUnreadable): // reported as a record
		return nil
	case err != nil:
		return err
	}
	if !bytes.Equal(key, indexKey(address, rec)) {
		c.report.Add(address, fmt.Sprintf("an entry in the index %q that its record does not have", key[0]))
	}
	return nil
}

func indexed(key []byte) (reservation.Address, error) {
	if key[0] == prefixOpen {
		return parseAddressKey(key)
	}
	_, address, err := parseExpiryKey(key)
	return address, err
}

func (c *checker) meta(key, value []byte) {
	switch name := string(key[1:]); name {
	case metaFormat, metaClock, metaFinished:
		if len(value) != 8 {
			c.report.Add(reservation.Address{}, fmt.Sprintf("meta entry %q is damaged", name))
		}
	default:
		c.report.Add(reservation.Address{}, "a meta entry of an unknown name")
	}
}

// count compares the number of finished records with what was kept count of.
func (c *checker) count() error {
	value, closer, err := c.view.Get(metaKey(metaFinished))
	if errors.Is(err, pebble.ErrNotFound) {
		value, err = bigEndian(0), nil
	} else if err == nil {
		defer closer.Close()
	}
	if err == nil && !bytes.Equal(value, bigEndian(uint64(c.expiry))) {
		c.report.Add(reservation.Address{}, fmt.Sprintf("the count of finished records is not %d, as their index says", c.expiry))
	}
	return err
}

func (c *checker) has(key []byte) (bool, error) {
	_, closer, err := c.view.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// Check implements store.Store. It reads a view: writers go on meanwhile.
//
// Where a block on disk is damaged, it goes on behind it, and names what lies in it as
// far as other entries tell of it.
func (s *Store) Check(ctx context.Context) (store.Report, error) {
	var report store.Report
	err := s.read(ctx, func(v *view) error {
		c := &checker{store: s, view: v, report: &report}
		for _, keys := range c.spans() {
			if err := c.span(ctx, keys); err != nil {
				return err
			}
		}
		c.count()
		return nil
	})
	if err != nil {
		return store.Report{}, err
	}
	return report, nil
}

// checker looks at each entry of a view, whatever its key, so that nothing lies in
// the store that nobody reads.
type checker struct {
	store  *Store
	view   *view
	report *store.Report
	expiry int64 // entries of the expiry index
	gaps   bool  // there are entries that could not be read
	// lastAct is the id of the last act of an operator.
	lastAct int64
}

// spans are all keys there can be: those of each kind, and what lies between them.
func (c *checker) spans() (all []span) {
	var from []byte
	for _, prefix := range []byte{prefixAudit, prefixBody, prefixExpiry, prefixOpen, prefixRecord} { // in their order
		kind := prefixSpan(prefix)
		all = append(all, span{from, kind.lower}, kind)
		from = kind.upper
	}
	return append(all, span{from, nil})
}

// span checks the entries of a span, and reports the gap in which they can't be read:
// from the first damaged block to the last. Its error is that the call is over.
func (c *checker) span(ctx context.Context, keys span) error {
	last, err := c.walk(ctx, keys, (*pebble.Iterator).First, (*pebble.Iterator).Next)
	if err == nil || c.store.interrupted(ctx) != nil {
		return err
	}
	c.gaps = true
	if last != nil {
		keys.lower = after(last)
	}
	next, _ := c.walk(ctx, keys, (*pebble.Iterator).Last, (*pebble.Iterator).Prev)
	address, from := reservation.Address{}, "the first"
	if last != nil {
		address, from = nearest(last), "the one of "+nameOf(last)
	}
	to := "the last"
	if next != nil {
		to = "the one of " + nameOf(next)
	}
	c.report.Add(address, fmt.Sprintf("entries of kind %q behind %s, before %s, can't be read: %v", keys.lower[:min(1, len(keys.lower))], from, to, err))
	return c.store.interrupted(ctx)
}

// walk checks entries one after another. It returns the key of the last one that it
// came to, and why it ended early.
func (c *checker) walk(ctx context.Context, keys span, first, next func(*pebble.Iterator) bool) (last []byte, err error) {
	it, err := c.view.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: keys.lower, UpperBound: keys.upper})
	if err != nil {
		return nil, err
	}
	for valid := first(it); valid; valid = next(it) {
		if err = c.store.interrupted(ctx); err != nil {
			break
		}
		var value []byte
		if value, err = it.ValueAndErr(); err != nil {
			break
		}
		c.entry(it.Key(), value)
		last = append(last[:0], it.Key()...)
	}
	return last, errors.Join(err, it.Close())
}

// nearest is the address that an entry belongs to, as far as it has one.
func nearest(key []byte) reservation.Address {
	var address reservation.Address
	switch key[0] {
	case prefixRecord, prefixOpen, prefixExpiry, prefixBody:
		address, _ = addressOf(key)
	}
	return address
}

func nameOf(key []byte) string {
	a := nearest(key)
	return fmt.Sprintf("%s/%s/%s", a.Tenant, a.Namespace, a.Key)
}

func (c *checker) entry(key, value []byte) {
	switch key[0] {
	case prefixRecord:
		c.record(key, value)
	case prefixOpen, prefixExpiry, prefixBody:
		c.index(key)
	case prefixAudit:
		c.act(key, value)
	case prefixMeta:
		c.meta(key, value)
	default:
		c.report.Add(reservation.Address{}, fmt.Sprintf("an entry of an unknown kind, 0x%02x", key[0]))
	}
}

// record checks a record and that its index entry is there.
func (c *checker) record(key, value []byte) {
	c.report.Records++
	address, err := parseAddressKey(key)
	if err != nil {
		c.report.Add(address, "a record under a malformed key")
		return
	}
	rec, err := decode(value)
	if err != nil {
		c.report.Add(address, err.Error())
		return
	}
	if err := rec.Check(); err != nil {
		c.report.Add(address, err.Error())
	}
	c.indexed(address, indexKey(address, rec))
	if body := bodyKey(address, rec); body != nil {
		c.indexed(address, body)
	}
}

// indexed checks that an index entry of a record is there.
func (c *checker) indexed(address reservation.Address, index []byte) {
	switch found, err := c.has(index); {
	case err != nil:
		c.report.Add(address, fmt.Sprintf("the record's entry in the index %q can't be read: %v", index[0], err))
	case !found:
		c.report.Add(address, fmt.Sprintf("the record has no entry in the index %q", index[0]))
	}
}

// act checks an act of an operator: it can be decoded, and stands right behind the one
// before it.
func (c *checker) act(key, value []byte) {
	id, err := parseAuditKey(key)
	if err == nil {
		_, err = codec.DecodeAudit(id, value)
	}
	switch {
	case err != nil:
		c.report.Add(reservation.Address{}, fmt.Sprintf("act %d of an operator: %v", id, err))
	case id != c.lastAct+1 && !c.gaps:
		c.report.Add(reservation.Address{}, fmt.Sprintf("act %d of an operator follows %d", id, c.lastAct))
	}
	c.lastAct = id
}

// index checks that an index entry is the one that its record has. Together with
// record this leaves exactly the entries that each record has.
func (c *checker) index(key []byte) {
	address, err := addressOf(key)
	if err != nil {
		c.report.Add(address, fmt.Sprintf("a malformed entry in the index %q", key[0]))
		return
	}
	if key[0] == prefixExpiry {
		c.expiry++
	}
	rec, err := readRecord(c.view, recordKey(address))
	switch {
	case errors.Is(err, errUnreadable): // reported as a record
	case err != nil:
		c.report.Add(address, fmt.Sprintf("the record can't be read: %v", err))
	case !bytes.Equal(key, indexKey(address, rec)) && !bytes.Equal(key, bodyKey(address, rec)):
		c.report.Add(address, fmt.Sprintf("an entry in the index %q that its record does not have", key[0]))
	}
}

func addressOf(key []byte) (reservation.Address, error) {
	if key[0] == prefixOpen || key[0] == prefixRecord {
		return parseAddressKey(key)
	}
	_, address, err := parseTimedKey(key)
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
func (c *checker) count() {
	stored, err := readMeta(c.view, metaFinished)
	switch {
	case err != nil: // reported as an entry
	case !c.gaps && stored != uint64(c.expiry):
		c.report.Add(reservation.Address{}, fmt.Sprintf("the count of finished records is not %d, as their index says", c.expiry))
	}
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

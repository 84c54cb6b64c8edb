package pebblestore

import (
	"bytes"
	"context"
	"errors"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// sweepStep is how many records one hold of the lock sweeps: callers wait behind it, a
// millisecond or two. With 50 the sweeper stood in their line ten times for a batch, and
// under load swept 4,000 a second, fewer than expire there; with 250 it is 6,300, and
// callers notice it less.
const sweepStep = 250

// stripBytes is about how much one hold of the lock reads of records with bodies.
const stripBytes = 2 << 20

// Sweep implements store.Store.
//
// It walks two indexes, of records by their expiry and of results by that of their bodies,
// each from where the last sweep ended, not from the start: there lie the tombstones of
// everything swept before, and stepping over them would make each sweep slower than the
// one before until a compaction drops them. Nothing can have been missed behind: a walk
// ends at the clock, and a record is only ever stored with expiries that lie ahead of the
// clock, or whose entries are there already.
//
// Its commits are links of the chain like all others, so that a record that List no
// longer shows does not come back after a power cut. Nothing else would need it (law
// 5), and it costs little: only the last step is waited for. Each step is whole: what
// a sweep that was cut off has deleted stays deleted, with its index entries.
func (s *Store) Sweep(ctx context.Context, limit int) (store.Swept, error) {
	if err := s.enter(ctx); err != nil {
		return store.Swept{}, store.Unavailable()
	}
	defer s.leave()
	if s.readOnly {
		return store.Swept{}, store.Unavailable()
	}
	swept, err := s.sweep(ctx, limit)
	if err != nil {
		if s.interrupted(ctx) == nil {
			s.logger.Error("the sweep failed", "error", err)
		}
		return swept, store.Unavailable()
	}
	return swept, nil
}

func (s *Store) sweep(ctx context.Context, limit int) (swept store.Swept, err error) {
	records := &lane{store: s, position: &s.swept, entry: s.sweepRecord}
	bodies := &lane{store: s, position: &s.stripped, entry: s.sweepBody}
	err = records.run(ctx, limit)
	if err == nil {
		err = bodies.run(ctx, limit)
	}
	swept.Deleted, swept.Stripped = records.done, bodies.done
	for _, l := range []*lane{records, bodies} {
		if l.passed > 0 {
			s.logger.Error("expired records that can't be read are kept; run idemd check", "records", l.passed)
		}
		if l.next != 0 {
			swept.More, swept.Lag = true, max(swept.Lag, l.now.Sub(l.next))
		}
		if err == nil {
			err = s.wait(ctx, l.link)
		}
	}
	return swept, err
}

// lane is one index on which a sweep goes.
type lane struct {
	store *Store
	// position is where it goes on; entry deals with one entry. Both under the lock.
	position *[]byte
	entry    func(w *writes, now reservation.Time, key []byte) (result, error)

	now    reservation.Time
	done   int              // entries of which something was removed
	passed int              // entries that could not be dealt with
	next   reservation.Time // expiry of the first entry left; 0 = there is none
	link   *link            // the last commit
}

// result is what became of an entry.
type result struct {
	done bool
	read int // bytes
}

// run goes on until limit entries are dealt with, or all that have expired.
func (l *lane) run(ctx context.Context, limit int) error {
	for left := limit; ; {
		seen, err := l.step(ctx, min(left, sweepStep))
		if err != nil {
			return err
		}
		if left -= seen; left <= 0 || l.next == 0 {
			return nil
		}
	}
}

// step is what one hold of the lock does: up to n entries.
//
// The records are first read without the lock, so that those that lie on disk are in
// memory when they are read again under it, where it counts (law 3).
func (l *lane) step(ctx context.Context, n int) (seen int, err error) {
	s := l.store
	if err := s.prefetch(ctx, l, n); err != nil {
		return 0, err
	}
	if err := s.acquire(ctx); err != nil {
		return 0, err
	}
	var done bool
	defer s.release(&done)
	w := &writes{batch: s.db.NewBatch()}
	l.now, l.next = s.tick(w), 0
	position, read := *l.position, 0
	err = s.scan(ctx, s.db, dueSpan(position, l.now), func(key, _ []byte) (bool, error) {
		if seen == n || read >= stripBytes {
			at, _, err := parseTimedKey(key)
			if err != nil {
				at = l.now
			}
			l.next = at
			return false, nil
		}
		swept, err := l.entry(w, l.now, key)
		if err != nil {
			l.passed++
		}
		seen++
		read += swept.read
		if swept.done {
			l.done++
		}
		position = after(key)
		return true, nil
	})
	// Also after an error: what was swept is whole, and the clock's floor is in there.
	l.link = s.commit(w)
	*l.position = position
	done = true
	return seen, err
}

// sweepRecord deletes what an entry of the expiry index stands for. The entry is
// believed only if the record says the same; one that nothing stands behind goes
// alone. A record that can't be read or decoded is kept, and so is its entry (law 8):
// err says why, and the sweep goes on behind it.
func (s *Store) sweepRecord(w *writes, now reservation.Time, key []byte) (swept result, err error) {
	_, address, err := parseTimedKey(key)
	if err != nil {
		return swept, err
	}
	record := recordKey(address)
	rec, err := readRecord(s.db, record)
	if err != nil {
		return swept, err
	}
	swept.done = rec != nil && rec.Expired(now) && bytes.Equal(key, indexKey(address, rec))
	if swept.done {
		w.delete(record)
		w.moveBody(bodyKey(address, rec), nil)
	}
	w.deleteIndex(bytes.Clone(key))
	s.finished--
	return swept, nil
}

// sweepBody takes the body out of the result that an entry of the index of bodies stands
// for, under the same rules. The record's other entry stays as it is.
func (s *Store) sweepBody(w *writes, now reservation.Time, key []byte) (swept result, err error) {
	_, address, err := parseTimedKey(key)
	if err != nil {
		return swept, err
	}
	record := recordKey(address)
	rec, err := readRecord(s.db, record)
	if err != nil {
		return swept, err
	}
	if rec != nil && rec.BodyExpired(now) && bytes.Equal(key, bodyKey(address, rec)) {
		swept = result{done: true, read: len(rec.Result.Body)}
		w.set(record, codec.EncodeRecord(rec.WithoutBody()))
	}
	w.delete(bytes.Clone(key))
	return swept, nil
}

// prefetch reads what the next step of a lane will read, and forgets it.
func (s *Store) prefetch(ctx context.Context, l *lane, n int) error {
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	position, seen, read := v.swept, 0, 0
	if l.position == &s.stripped {
		position = v.stripped
	}
	err = s.scan(ctx, v, dueSpan(position, v.now), func(key, _ []byte) (bool, error) {
		if seen++; seen > n || read >= stripBytes {
			return false, nil
		}
		// What can't be read is the step's to deal with.
		if _, address, err := parseTimedKey(key); err == nil {
			if value, closer, err := v.Get(recordKey(address)); err == nil {
				read += len(value)
				return true, closer.Close()
			}
		}
		return true, nil
	})
	return errors.Join(err, v.Close())
}

package pebblestore

import (
	"bytes"
	"context"
	"errors"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// sweepStep is how many records one hold of the lock sweeps: callers wait behind it, a
// millisecond or two. With 50 the sweeper stood in their line ten times for a batch, and
// under load swept 4,000 a second, fewer than expire there; with 250 it is 6,300, and
// callers notice it less.
const sweepStep = 250

// Sweep implements store.Store.
//
// It walks the expiry index from s.swept, where the last sweep ended, not from the
// start: there lie the tombstones of everything swept before, and stepping over them
// would make each sweep slower than the one before until a compaction drops them.
// Nothing can have been missed behind s.swept: the walk ends at the clock, and a
// record is only ever stored with an expiry that lies ahead of the clock.
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

func (s *Store) sweep(ctx context.Context, limit int) (store.Swept, error) {
	var swept store.Swept
	passed := 0
	defer func() {
		if passed > 0 {
			s.logger.Error("expired records that can't be read are kept; run idemd check", "records", passed)
		}
	}()
	for left := limit; ; {
		step, err := s.sweepStep(ctx, min(left, sweepStep))
		if err != nil {
			return swept, err
		}
		left -= step.seen
		passed += step.passed
		swept.Deleted += step.deleted
		swept.More, swept.Lag = step.next != 0, 0
		if swept.More {
			swept.Lag = step.now.Sub(step.next)
		}
		if left <= 0 || !swept.More {
			return swept, s.wait(ctx, step.link)
		}
	}
}

// step is what one hold of the lock did.
type step struct {
	now           reservation.Time
	seen, deleted int
	passed        int              // entries that could not be dealt with
	next          reservation.Time // expiry of the first entry left; 0 = there is none
	link          *link
}

// sweepStep sweeps up to n entries.
//
// The records are first read without the lock, so that those that lie on disk are in
// memory when they are read again under it, where it counts (law 3).
func (s *Store) sweepStep(ctx context.Context, n int) (step, error) {
	if err := s.prefetch(ctx, n); err != nil {
		return step{}, err
	}
	if err := s.acquire(ctx); err != nil {
		return step{}, err
	}
	var done bool
	defer s.release(&done)
	w := &writes{batch: s.db.NewBatch()}
	st := step{now: s.tick(w)}
	position := s.swept
	err := s.scan(ctx, s.db, dueSpan(position, st.now), func(key, _ []byte) (bool, error) {
		if st.seen == n {
			at, _, err := parseExpiryKey(key)
			if err != nil {
				at = st.now
			}
			st.next = at
			return false, nil
		}
		deleted, err := s.sweepEntry(w, st.now, key)
		if err != nil {
			st.passed++
		}
		st.seen++
		if deleted {
			st.deleted++
		}
		position = after(key)
		return true, nil
	})
	// Also after an error: what was swept is whole, and the clock's floor is in there.
	st.link = s.commit(w)
	s.swept = position
	done = true
	return st, err
}

// sweepEntry deletes what an entry of the expiry index stands for. The entry is
// believed only if the record says the same; one that nothing stands behind goes
// alone. A record that can't be read or decoded is kept, and so is its entry (law 8):
// err says why, and the sweep goes on behind it.
func (s *Store) sweepEntry(w *writes, now reservation.Time, key []byte) (deleted bool, err error) {
	_, address, err := parseExpiryKey(key)
	if err != nil {
		return false, err
	}
	record := recordKey(address)
	rec, err := readRecord(s.db, record)
	if err != nil {
		return false, err
	}
	deleted = rec != nil && rec.Expired(now) && bytes.Equal(key, indexKey(address, rec))
	if deleted {
		w.delete(record)
	}
	w.deleteIndex(bytes.Clone(key))
	s.finished--
	return deleted, nil
}

// prefetch reads what the next step will read, and forgets it.
func (s *Store) prefetch(ctx context.Context, n int) error {
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	seen := 0
	err = s.scan(ctx, v, dueSpan(v.position, v.now), func(key, _ []byte) (bool, error) {
		if seen++; seen > n {
			return false, nil
		}
		// What can't be read is the step's to deal with.
		if _, address, err := parseExpiryKey(key); err == nil {
			if _, closer, err := v.Get(recordKey(address)); err == nil {
				return true, closer.Close()
			}
		}
		return true, nil
	})
	return errors.Join(err, v.Close())
}

package pebblestore

import (
	"bytes"
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/codec"
)

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	outcomes := make([]reservation.Outcome, len(commands))
	if err := s.apply(ctx, commands, outcomes); err != nil {
		for i := range outcomes {
			outcomes[i] = store.Unavailable()
		}
	}
	return outcomes
}

func (s *Store) apply(ctx context.Context, commands []reservation.Command, outcomes []reservation.Outcome) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	for groups := store.Groups(commands); ; {
		rest, l, err := s.decide(ctx, groups, commands, outcomes)
		if err == nil {
			err = s.wait(ctx, l)
		}
		if err != nil || len(rest) == 0 {
			return err
		}
		groups = rest
	}
}

// commitBytes is about how much one commit writes: the lock is held, and memory, while
// it is made. A batch that writes more is done in several, each on disk before the next
// begins. Commands on one address stay together.
const commitBytes = 8 << 20

// decide is all that happens under one hold of the lock. It returns the groups that are
// left for the next.
func (s *Store) decide(ctx context.Context, groups []store.Group, commands []reservation.Command, outcomes []reservation.Outcome) ([]store.Group, *link, error) {
	if s.readOnly {
		return nil, nil, errReadOnly
	}
	if err := s.acquire(ctx); err != nil {
		return nil, nil, err
	}
	var done bool
	defer s.release(&done)
	w := &writes{batch: s.db.NewBatch()}
	now := s.tick(w)
	next := 0
	for next < len(groups) && w.batch.Len() < commitBytes {
		s.decideGroup(w, now, groups[next], commands, outcomes)
		next++
	}
	l := s.commit(w)
	done = true
	return groups[next:], l, nil
}

// errReadOnly refuses a change to a store that was opened to be read.
var errReadOnly = errors.New("the store is open for reading only")

func (s *Store) decideGroup(w *writes, now reservation.Time, group store.Group, commands []reservation.Command, outcomes []reservation.Outcome) {
	key := recordKey(group.Address)
	rec, err := readRecord(s.db, key)
	if err != nil {
		group.Answer(s.refusal(err), outcomes)
		return
	}
	next, acts := group.Fold(now, rec, commands, outcomes)
	if next != rec {
		s.put(w, group.Address, key, rec, next)
	}
	for _, act := range acts {
		s.audited++
		w.set(auditKey(s.audited), codec.EncodeAudit(act))
	}
}

// put stores a record and moves its index entries. The lock is held, and rec is what is
// stored now.
func (s *Store) put(w *writes, address reservation.Address, key []byte, rec, next *reservation.Record) {
	w.set(key, codec.EncodeRecord(next))
	w.moveBody(bodyKey(address, rec), bodyKey(address, next))
	from, to := indexKey(address, rec), indexKey(address, next)
	if bytes.Equal(from, to) {
		return
	}
	if from != nil {
		w.deleteIndex(from)
		s.countFinished(rec, -1)
	}
	w.set(to, nil)
	s.countFinished(next, +1)
}

func (s *Store) countFinished(rec *reservation.Record, n int64) {
	if rec.State.Finished() {
		s.finished += n
	}
}

// errUnreadable is a record that can't be decoded.
var errUnreadable = errors.New("the record can't be decoded")

// readRecord reads a record, nil if there is none.
func readRecord(from pebble.Reader, key []byte) (*reservation.Record, error) {
	value, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return decode(value)
}

func decode(value []byte) (*reservation.Record, error) {
	rec, err := codec.DecodeRecord(value)
	if err != nil {
		return nil, errors.Join(errUnreadable, err)
	}
	return rec, nil
}

// refusal is the answer to whoever asked for a record that could not be read.
func (s *Store) refusal(err error) *reservation.Error {
	if errors.Is(err, errUnreadable) {
		return store.Unreadable()
	}
	s.logger.Error("the store can't read a record", "error", err)
	return store.Unavailable()
}

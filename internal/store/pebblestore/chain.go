package pebblestore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
)

// The chain of commits keeps law 1, durable before answered, while the next batch
// decides during this one's fsync. Its invariants:
//
//  1. Commits happen under the lock, so links are numbered in the order of the log.
//  2. s.last is the latest link. Whoever reads under the lock, or takes a Pebble
//     snapshot under it, sees what the links up to s.last wrote, and nothing else.
//  3. A link is done when its batch and all before it are on disk: syncLinks takes
//     them in order, and the log is synced in order.
//  4. So an answer may leave when the link is done that was s.last when it read.
//  5. Once the store has failed, no link is done without an error.

// link is one commit on its way to the disk.
type link struct {
	batch *pebble.Batch
	done  chan struct{}
	err   error // read after done
}

// commit writes a batch to the log's buffer and makes its effects visible; wait, on
// the link returned, says whether it came to the disk. The lock is held.
func (s *Store) commit(w *writes) *link {
	if s.finished != s.finishedStored {
		w.setMeta(metaFinished, uint64(max(0, s.finished)))
	}
	if w.batch.Empty() && w.err == nil {
		_ = w.batch.Close()
		return s.last
	}
	l := &link{batch: w.batch, done: make(chan struct{})}
	err := w.err
	if err == nil {
		err = s.db.ApplyNoSyncWait(w.batch, pebble.Sync)
	}
	if err != nil {
		s.fail(err)
		l.err = err
		close(l.done)
		return l
	}
	s.finishedStored = s.finished
	s.last = l
	s.links <- l
	return l
}

// syncLinks waits for the fsync of each commit, in order.
func (s *Store) syncLinks() {
	defer close(s.synced)
	for l := range s.links {
		if err := l.batch.SyncWait(); err != nil {
			s.fail(err)
		}
		// Also where Pebble reported success: it may have been told so by walGuard.
		l.err = s.failure()
		_ = l.batch.Close()
		l.batch = nil
		close(l.done)
	}
}

// wait waits until the link, and with it everything before it, is on disk.
func (s *Store) wait(ctx context.Context, l *link) error {
	if l == nil { // nothing was ever written by this process
		return s.failure()
	}
	select {
	case <-l.done:
		return l.err
	default:
	}
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

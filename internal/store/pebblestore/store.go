package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

var _ store.Store = (*Store)(nil)

// Store is a directory of reservations.
type Store struct {
	db       *pebble.DB
	closers  []io.Closer // in the order of closing
	logger   *slog.Logger
	diskFree func() uint64
	// readOnly: nothing is written.
	readOnly bool
	// cantWrite is the first error that kept a table from being written.
	cantWrite chan error

	// failed is why the store answers nothing any more.
	failed atomic.Pointer[error]
	// closing ends scans early; users waits for the calls under way.
	closing     chan struct{}
	closeOnce   sync.Once
	closeWithin time.Duration
	users       sync.RWMutex
	waiting     atomic.Int64 // calls that wait for an fsync
	ahead       atomic.Int64 // of the clock over the wall, in nanoseconds

	links  chan *link    // to syncLinks, in the order of commits
	synced chan struct{} // syncLinks has ended

	// lock is held while records are read to be changed, and guards what follows. A
	// channel, so that whoever waits for it can give up.
	lock  chan struct{}
	clock clock
	last  *link // the latest commit
	// finished is the number of entries of the expiry index; finishedStored is what
	// the meta entry says.
	finished, finishedStored int64
	// audited is the id of the latest act of an operator.
	audited int64
	// swept is where the next sweep of records begins, and of bodies.
	swept, stripped []byte
}

var errClosed = errors.New("the store is closed")

// maxLinks bounds the commits whose fsync is under way.
const maxLinks = 256

func newStore(options Options) *Store {
	return &Store{
		logger:      options.Logger,
		readOnly:    options.ReadOnly,
		cantWrite:   make(chan error, 1),
		closing:     make(chan struct{}),
		closeWithin: options.closeWithin,
		links:       make(chan *link, maxLinks),
		synced:      make(chan struct{}),
		lock:        make(chan struct{}, 1),
		swept:       []byte{prefixExpiry},
		stripped:    []byte{prefixBody},
	}
}

// fail makes the store answer nothing any more.
func (s *Store) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) {
		s.logger.Error("the store has failed and answers nothing until it is opened again; what was acknowledged is safe", "error", err)
	}
}

// failure is why the store failed; nil = it did not.
func (s *Store) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// enter begins a call; leave ends it.
func (s *Store) enter(ctx context.Context) error {
	if err := s.interrupted(ctx); err != nil {
		return err // at once, also while Close waits for others
	}
	if !s.users.TryRLock() { // Close alone holds or wants it
		return errClosed
	}
	if err := s.interrupted(ctx); err != nil {
		s.users.RUnlock()
		return err
	}
	return nil
}

func (s *Store) leave() { s.users.RUnlock() }

// interrupted tells whether a call should end now.
func (s *Store) interrupted(ctx context.Context) error {
	select {
	case <-s.closing:
		return errClosed
	default:
	}
	if err := s.failure(); err != nil {
		return err
	}
	return ctx.Err()
}

// acquire takes the lock.
func (s *Store) acquire(ctx context.Context) error {
	select {
	case s.lock <- struct{}{}:
	default:
		select {
		case s.lock <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return errClosed
		}
	}
	if err := s.failure(); err != nil {
		<-s.lock
		return err
	}
	return nil
}

// release gives the lock back. Where its holder panicked, what it did is half done:
// then nothing may be answered any more.
func (s *Store) release(done *bool) {
	if !*done {
		s.fail(errors.New("a call panicked while it held the store"))
	}
	<-s.lock
}

// tick reads the clock and adds the floor to the batch where one is due. The lock is
// held.
func (s *Store) tick(w *writes) reservation.Time {
	now, floor := s.clock.read()
	s.ahead.Store(int64(s.clock.ahead()))
	if floor != 0 && !s.readOnly {
		w.setMeta(metaClock, uint64(floor))
	}
	return now
}

// Ping implements store.Store. It waits for the latest commit, as a Lookup does: a disk
// that hangs answers nothing.
func (s *Store) Ping(ctx context.Context) error {
	err := s.ping(ctx)
	if s.failure() != nil {
		return store.ErrFailed
	}
	if err != nil {
		return store.Unavailable()
	}
	return nil
}

func (s *Store) ping(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	// A stalled writer holds the lock.
	if err := s.acquire(ctx); err != nil {
		return err
	}
	last := s.last
	<-s.lock
	return s.wait(ctx, last)
}

// Close implements store.Store. It gives up where the disk hangs; what is left then
// holds the directory until the process ends.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.closing)
		closed := make(chan error, 1)
		go func() { closed <- s.finish() }()
		late := time.NewTimer(s.closeWithin)
		defer late.Stop()
		select {
		case err = <-closed:
		case <-late.C:
			err = fmt.Errorf("the store did not close within %v: its disk hangs; what was answered is safe", s.closeWithin)
		}
	})
	return err
}

// finish waits for calls and fsyncs under way and closes the files.
func (s *Store) finish() error {
	s.users.Lock()
	defer s.users.Unlock()
	close(s.links)
	<-s.synced
	return s.closeAll()
}

func (s *Store) closeAll() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

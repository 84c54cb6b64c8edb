package pebblestore

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

var _ store.Store = (*Store)(nil)

// Store is a directory of reservations.
type Store struct {
	db      *pebble.DB
	closers []io.Closer // in the order of closing
	logger  *slog.Logger

	// failed is why the store answers nothing any more.
	failed atomic.Pointer[error]
	// closing ends scans early; users waits for the calls under way.
	closing   chan struct{}
	closeOnce sync.Once
	users     sync.RWMutex
	waiting   atomic.Int64 // calls that wait for an fsync
	ahead     atomic.Int64 // of the clock over the wall, in nanoseconds

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
	// swept is where the next sweep begins.
	swept []byte
}

var errClosed = errors.New("the store is closed")

// maxLinks bounds the commits whose fsync is under way.
const maxLinks = 256

func newStore(options Options) *Store {
	return &Store{
		logger:  options.Logger,
		closing: make(chan struct{}),
		links:   make(chan *link, maxLinks),
		synced:  make(chan struct{}),
		lock:    make(chan struct{}, 1),
		swept:   []byte{prefixExpiry},
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
	s.users.RLock()
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
	if floor != 0 {
		w.setMeta(metaClock, uint64(floor))
	}
	return now
}

// Ping implements store.Store.
func (s *Store) Ping(ctx context.Context) error {
	if s.failure() != nil {
		return store.ErrFailed
	}
	if err := s.enter(ctx); err != nil {
		return store.Unavailable()
	}
	defer s.leave()
	// A stalled writer holds the lock.
	if err := s.acquire(ctx); err != nil {
		return store.Unavailable()
	}
	<-s.lock
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.closing)
		s.users.Lock()
		defer s.users.Unlock()
		close(s.links)
		<-s.synced
		err = s.closeAll()
	})
	return err
}

func (s *Store) closeAll() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

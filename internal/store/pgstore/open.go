package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/internal/store"
)

// Store keeps reservations in a PostgreSQL database.
type Store struct {
	options    Options
	log        *slog.Logger
	statements statements

	// pool serves commands and reads. side serves the sweeper, the statistics and
	// readiness, which callers must not be able to starve, nor they the callers.
	pool, side *pgxpool.Pool

	// failing: the last that was heard of the database was an error. It keeps the
	// log to one line an outage.
	failing atomic.Bool

	sweeps sweeps

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // under way
	// abandoned ends what is under way when Close has waited long enough for it.
	abandoned context.Context
	abandon   context.CancelFunc
}

var _ store.Store = (*Store)(nil)

// Open connects to the database and makes sure that its schema is the one this
// program works with.
func Open(ctx context.Context, options Options) (*Store, error) {
	options = options.withDefaults()
	var err error
	if options.Migrate {
		err = Migrate(ctx, options.DSN)
	} else {
		err = checkSchema(ctx, options.DSN)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{options: options, log: options.Logger, statements: newStatements()}
	s.abandoned, s.abandon = context.WithCancel(context.WithoutCancel(ctx))
	if s.pool, err = newPool(ctx, options, options.MaxConns); err != nil {
		return nil, err
	}
	if s.side, err = newPool(ctx, options, sideConns); err != nil {
		s.pool.Close()
		return nil, err
	}
	if err := s.examine(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func newPool(ctx context.Context, options Options, conns int) (*pgxpool.Pool, error) {
	config, err := options.poolConfig(conns)
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// examine refuses a database that can't keep every text, and warns of one that does
// not keep its promises.
func (s *Store) examine(ctx context.Context) error {
	settings, err := s.Settings(ctx)
	if err != nil {
		return fmt.Errorf("ask the database for its settings: %s", describe(err))
	}
	return s.judge(ctx, settings)
}

func (s *Store) judge(ctx context.Context, settings Settings) error {
	if settings.Encoding != "UTF8" {
		return fmt.Errorf("the database has the encoding %s: idemd needs UTF8", settings.Encoding)
	}
	if settings.Fsync != "on" || settings.FullPageWrites != "on" {
		s.log.ErrorContext(ctx, "THE DATABASE LOSES WHAT WAS ANSWERED when its machine fails: operations will be executed twice; "+
			"set fsync and full_page_writes to on", "fsync", settings.Fsync, "full_page_writes", settings.FullPageWrites)
	}
	return nil
}

// closeLimit bounds how long Close waits for a database that does not answer.
const closeLimit = 3 * time.Second

// Close implements store.Store. What is under way after closeLimit is cut off: its
// callers have been told nothing, so nothing is broken.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	giveUp := time.AfterFunc(closeLimit, s.abandon)
	s.work.Wait()
	if giveUp.Stop() {
		s.abandon()
	}
	closed := make(chan struct{})
	go func() {
		// Waits until the database has taken leave of each connection that was cut.
		s.pool.Close()
		s.side.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
	return nil
}

var errClosed = errors.New("the store is closed")

// enter notes that something is under way; the caller calls s.work.Done at its end.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.work.Add(1)
	return nil
}

// detached runs work to its end, also beyond the end of ctx, and returns what it
// returned, or early when ctx ends. Nothing that has begun on a connection is
// cancelled with its caller: cancelling costs the database a process each time, and
// thousands of impatient callers would come on top of what made them impatient.
func detached[R any](ctx context.Context, s *Store, work func() (R, error)) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := s.enter(); err != nil {
		return none, err
	}
	type answer struct {
		result R
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		defer s.work.Done()
		result, err := work()
		answered <- answer{result, err}
	}()
	select {
	case a := <-answered:
		return a.result, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// on runs work on one connection of a pool. The wait for it ends with ctx, the work
// doesn't: it has a bound of its own.
func (s *Store) on(ctx context.Context, pool *pgxpool.Pool, work func(context.Context, *pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.options.StatementTimeout+10*time.Second)
	defer cancel()
	defer context.AfterFunc(s.abandoned, cancel)()
	err = work(ctx, conn.Conn())
	if lost(err) {
		_ = conn.Conn().Close(ctx)
	}
	return err
}

// note tells the log when the database begins to fail and when it is back.
func (s *Store) note(ctx context.Context, err error) {
	switch {
	case err == nil:
		if s.failing.Load() && s.failing.Swap(false) {
			s.log.InfoContext(ctx, "the database answers again")
		}
	case errors.Is(err, errClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The caller's doing, or told by what follows.
	default:
		if !s.failing.Swap(true) {
			s.log.ErrorContext(ctx, "the database can't answer", "error", describe(err))
		}
	}
}

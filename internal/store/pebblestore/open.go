package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
)

// layout is the version of keys.go. A program that finds a higher one is older than
// the directory.
const layout = 1

// clockLeadToWarn is how far the clock may start ahead of the wall before it is
// worth an operator's attention.
const clockLeadToWarn = 5 * time.Second

var errLocked = errors.New("locked")

// Open opens the store in a directory, or makes a new one. Its errors name the
// directory and say what to do.
//
// It ends when ctx does, and when what was replayed from the log can't be written to
// tables, as on a full disk: Pebble itself tries that again without end. What is then
// left of the opening goes on and holds the directory until it ends or the process
// does, which is to end.
func Open(ctx context.Context, options Options) (*Store, error) {
	options = options.withDefaults()
	if options.FS == vfs.Default {
		// The lock goes by the name: one directory must not have two.
		dir, err := filepath.Abs(options.Dir)
		if err != nil {
			return nil, fmt.Errorf("data directory %q: %w", options.Dir, err)
		}
		options.Dir = dir
	}
	s := newStore(options)
	opened := make(chan error, 1)
	go func() { opened <- s.open(options) }()
	err := s.waitOpened(ctx, opened)
	if err != nil {
		return nil, explain(options.Dir, err)
	}
	return s, nil
}

// waitOpened waits until the store is open. One that opens when nobody waits any more
// is closed.
func (s *Store) waitOpened(ctx context.Context, opened <-chan error) error {
	var err error
	select {
	case err := <-opened:
		return err
	case err = <-s.cantWrite:
		err = fmt.Errorf("the store can't write its tables, as on a full disk; what was answered is safe in its log: make room and start again (%w)", err)
	case <-ctx.Done():
		err = fmt.Errorf("it was not open in time; what was answered is safe (%w)", context.Cause(ctx))
	}
	select {
	case err := <-opened: // both at once
		return err
	default:
	}
	go func() {
		if <-opened == nil {
			_ = s.Close()
		}
	}()
	return err
}

// noteCantWrite keeps the first error for whoever opens.
func (s *Store) noteCantWrite(err error) {
	select {
	case s.cantWrite <- err:
	default:
	}
}

func explain(dir string, err error) error {
	if errors.Is(err, errLocked) {
		return fmt.Errorf("data directory %q is in use by another process: a directory serves one process; stop the other one, or give this one a directory of its own (%w)", dir, err)
	}
	return fmt.Errorf("data directory %q: %w", dir, err)
}

func (s *Store) open(options Options) error {
	slow := events(s.logger, s.noteCantWrite)
	disk, stopWatching := vfs.WithDiskHealthChecks(options.FS, slowDisk, nil, slow.DiskSlow)
	guard := &walGuard{FS: disk, failed: s.fail}
	s.closers = []io.Closer{stopWatching}
	s.diskFree = func() uint64 {
		usage, err := options.FS.GetDiskUsage(options.Dir)
		if err != nil {
			return 0
		}
		return usage.AvailBytes
	}
	settings := tuned(guard, pebbleLogger{s.logger, options.exit}, slow)
	settings.ReadOnly = options.ReadOnly
	err := s.openDB(options, settings)
	if err == nil {
		err = s.load(options)
	}
	if err != nil {
		return errors.Join(err, s.closeAll())
	}
	go s.syncLinks()
	return nil
}

// openDB looks at the directory and has Pebble open it.
func (s *Store) openDB(options Options, settings *pebble.Options) error {
	exists, err := survey(settings.FS, options.Dir, options.MustExist || options.ReadOnly)
	if err != nil {
		return err
	}
	format := pebble.FormatDefault
	if exists {
		lock, err := pebble.LockDirectory(options.Dir, settings.FS)
		if err != nil {
			return err
		}
		s.closeFirst(lock)
		settings.Lock = lock
		if format, err = inspect(settings.FS, options.Dir); err != nil {
			return err
		}
	}
	s.db, err = pebble.Open(options.Dir, settings)
	if err != nil {
		return err
	}
	s.closeFirst(s.db)
	if format < formatVersion && !options.ReadOnly {
		return s.leaveFirstLog()
	}
	return nil
}

// leaveFirstLog begins a new log. Pebble began the first one of a new store before it
// went over to formatVersion: damage to it would pass for its end. Nothing may be
// answered by it.
func (s *Store) leaveFirstLog() error {
	err := errors.Join(s.checkLayout(), s.failure()) // writes, if need be: an empty log is kept
	if err != nil {
		return err
	}
	return s.db.Flush()
}

// closeFirst puts a closer before the others.
func (s *Store) closeFirst(c io.Closer) { s.closers = append([]io.Closer{c}, s.closers...) }

// load reads the meta entries.
func (s *Store) load(options Options) error {
	if err := s.checkLayout(); err != nil {
		return err
	}
	floor, err := readMeta(s.db, metaClock)
	if err != nil {
		return err
	}
	finished, err := readMeta(s.db, metaFinished)
	if err != nil {
		return err
	}
	s.finished, s.finishedStored = int64(finished), int64(finished)
	if s.audited, err = lastAudited(s.db); err != nil {
		return err
	}
	s.startClock(options, reservation.Time(floor))
	return s.failure()
}

// checkLayout refuses a directory that a later program wrote, and marks a new one.
func (s *Store) checkLayout() error {
	found, err := readMeta(s.db, metaFormat)
	switch {
	case err != nil:
		return err
	case found > layout:
		return fmt.Errorf("it was written by a later version of idemd (layout %d, this one knows %d): run that version, or restore a backup from before the upgrade", found, layout)
	case found == layout || s.readOnly:
		return nil
	}
	return s.db.Set(metaKey(metaFormat), bigEndian(layout), pebble.Sync)
}

func (s *Store) startClock(options Options, floor reservation.Time) {
	if options.Clock != nil {
		s.clock = exactClock(options.Clock)
		return
	}
	s.clock = newSteadyClock(floor, options.wall, options.elapsed)
	if lead := s.clock.ahead(); lead > clockLeadToWarn {
		s.logger.Warn("this machine's clock was set back: the store's clock is ahead of it and runs at half speed until it has caught up; leases and retentions last longer",
			"ahead", lead)
	}
}

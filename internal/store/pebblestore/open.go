package pebblestore

import (
	"errors"
	"fmt"
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
func Open(options Options) (*Store, error) {
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
	if err := s.open(options); err != nil {
		return nil, explain(options.Dir, err)
	}
	return s, nil
}

func explain(dir string, err error) error {
	if errors.Is(err, errLocked) {
		return fmt.Errorf("data directory %q is in use by another process: a directory serves one process; stop the other one, or give this one a directory of its own (%w)", dir, err)
	}
	return fmt.Errorf("data directory %q: %w", dir, err)
}

func (s *Store) open(options Options) error {
	slow := events(s.logger)
	disk, stopWatching := vfs.WithDiskHealthChecks(options.FS, slowDisk, nil, slow.DiskSlow)
	guard := &walGuard{FS: disk, failed: s.fail}
	db, err := pebble.Open(options.Dir, tuned(guard, pebbleLogger{s.logger, options.exit}, slow))
	if err != nil {
		return errors.Join(err, stopWatching.Close())
	}
	s.db, s.closers = db, append(s.closers, db, stopWatching)
	if err := s.load(options); err != nil {
		return errors.Join(err, s.closeAll())
	}
	go s.syncLinks()
	return nil
}

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
	case found == layout:
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

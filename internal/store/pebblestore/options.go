package pebblestore

import (
	"log/slog"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
)

// Options say where a store lives.
type Options struct {
	// Dir is the directory; it is made if it does not exist.
	Dir string
	// MustExist refuses a directory without a store instead of making one.
	MustExist bool
	// ReadOnly opens a store that is there and changes nothing of it: Apply and Sweep
	// are refused. It needs no room on the disk.
	ReadOnly bool
	// FS is the file system; nil = the disk.
	FS vfs.FS
	// Clock, if set, is the store's clock: it reads exactly this. It must not step
	// back, nor start earlier after Close and Open. Nil = the wall clock, made
	// steady; see steadyClock.
	Clock func() reservation.Time
	// Logger; nil = slog.Default().
	Logger *slog.Logger

	// wall and elapsed replace the sources of the steady clock in tests.
	wall    func() time.Time
	elapsed func() time.Duration
	// exit ends the process where Pebble can't go on; tests replace it.
	exit func(code int)
	// closeWithin bounds Close.
	closeWithin time.Duration
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.wall == nil {
		o.wall = time.Now
	}
	if o.elapsed == nil {
		start := time.Now()
		o.elapsed = func() time.Duration { return time.Since(start) }
	}
	if o.exit == nil {
		o.exit = os.Exit
	}
	if o.closeWithin == 0 {
		o.closeWithin = 5 * time.Second
	}
	return o
}

package pebblestore

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is Pebble's file format, pinned: were it to follow the library, an
// upgrade of the library would silently make the directory unreadable for the program
// before, and a rollback impossible. It has checked table footers, and a log whose
// chunks tell how far it was synced before them: damage in front of that fails the
// opening loudly.
//
// Damage behind it passes for what a power cut leaves, and what was acknowledged there
// is lost silently: at least the last block of 32 KiB. It is more where commits are
// large, for Pebble (2.1.7) does not count the blocks as synced that one flush filled.
const formatVersion = pebble.FormatTableFormatV6

const (
	cacheBytes    = 64 << 20
	memTableBytes = 32 << 20
	// slowDisk is how long one disk operation may take before it is logged.
	slowDisk = 5 * time.Second
)

// tuned are Pebble's settings. What is not set here is Pebble's default.
func tuned(fs vfs.FS, logger pebble.Logger, events *pebble.EventListener) *pebble.Options {
	opts := &pebble.Options{
		FS:                 fs,
		Logger:             logger,
		EventListener:      events,
		FormatMajorVersion: formatVersion,
		// Plain byte order, which keys.go makes that of addresses.
		Comparer: pebble.DefaultComparer,

		// The log is the promise. It is synced by every commit (chain.go).
		DisableWAL: false,
		// Start writing a big batch back while it is still being buffered: the fsync
		// that a caller waits for then has less left to do.
		WALBytesPerSync: 512 << 10,

		// Blocks that retries and sweeps read again.
		CacheSize: cacheBytes,
		// Most operations are reserved, completed and never asked for again. The
		// longer they stay in memory, the more of their changes are dropped before
		// they are ever written to a table.
		MemTableSize: memTableBytes,
		// Writers go on while up to three full tables wait for the disk.
		MemTableStopWritesThreshold: 4,
		// Compact the newest level early: each of its sublevels is one more place to
		// look for every key.
		L0CompactionThreshold: 2,
		// Stopping writers is the last resort: a stop stalls every caller.
		L0StopWritesThreshold: 64,
		// A second compaction where the first can't keep up.
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 2 },
	}
	for i := range opts.Levels {
		// Most Reserves ask for a key that was never seen. Ten bits a key spare 99 of
		// 100 of these look-ups the table.
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		opts.Levels[i].FilterType = pebble.TableFilter
	}
	return opts
}

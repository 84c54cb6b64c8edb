// Package pebblestore is the embedded store: reservations in a directory of this
// machine, in Pebble (https://github.com/cockroachdb/pebble), a log-structured store
// made for many small synced writes. One process serves a directory; a second opener
// is refused.
//
// How a batch gets through, and which law of package store each step keeps:
//
//  1. It takes the store's lock, so that nobody else changes what it reads (law 3),
//     and then reads the clock (law 4).
//  2. It reads the records, runs Decide on them (law 2) and writes what changed,
//     records and index entries together, as one Pebble batch: all of it survives a
//     crash, or none.
//  3. It lets go of the lock as soon as the batch stands in the log's buffer, before
//     the fsync. The next batch decides while this one's fsync is under way.
//  4. It answers only when its fsync, and that of every batch it may have read from,
//     is done (law 1; chain.go).
//
// When a write or an fsync of the log fails, nobody knows what is on disk, and asking
// again does not help: the kernel may have dropped the dirty pages and report success
// the next time. The store then fails for good: everything is answered
// STORE_UNAVAILABLE until the directory is opened again (law 6; walguard.go).
//
// It may import packages store, codec and reservation, and is the only importer of
// Pebble.
package pebblestore

package pebblestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// walCategory is how Pebble names its log to the file system.
const walCategory vfs.DiskWriteCategory = "pebble-wal"

// walGuard fails the store, and not the process, when the log can't be written.
//
// Pebble reports a failed fsync to whoever waits for it, but panics, with its mutexes
// held, as soon as it then appends to the log or rotates it. So the guard takes note
// of the first failure, calls failed, and from then on plays dead: it tells Pebble
// that everything went well and touches the log no more. No answer goes by that lie,
// for failed was called before it: from then on every answer is STORE_UNAVAILABLE.
// The log on disk stays as the failure left it, with everything acknowledged before.
//
// Only the log is treated so. A lie about tables or the manifest could make Pebble
// delete a log that is still needed.
type walGuard struct {
	vfs.FS
	failed func(error)
	dead   atomic.Bool
}

// check notes a failure.
func (g *walGuard) check(what string, err error) {
	if err != nil {
		g.failed(fmt.Errorf("%s: %w", what, err))
		g.dead.Store(true)
	}
}

// Create implements vfs.FS.
func (g *walGuard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category != walCategory {
		return g.FS.Create(name, category)
	}
	return g.openLog(name, func() (vfs.File, error) { return g.FS.Create(name, category) })
}

// ReuseForWrite implements vfs.FS.
func (g *walGuard) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category != walCategory {
		return g.FS.ReuseForWrite(oldname, newname, category)
	}
	return g.openLog(newname, func() (vfs.File, error) { return g.FS.ReuseForWrite(oldname, newname, category) })
}

func (g *walGuard) openLog(name string, open func() (vfs.File, error)) (vfs.File, error) {
	if !g.dead.Load() {
		file, err := open()
		if err == nil {
			return &walFile{File: file, guard: g}, nil
		}
		g.check("creating the log", err)
	}
	return &walFile{File: deadFile{name}, guard: g}, nil
}

// Lock implements vfs.FS. It marks the error, so that it can be told from others.
func (g *walGuard) Lock(name string) (io.Closer, error) {
	lock, err := g.FS.Lock(name)
	var path *fs.PathError
	if err != nil && !errors.As(err, &path) {
		err = fmt.Errorf("%w: %w", errLocked, err)
	}
	return lock, err
}

// MkdirAll implements vfs.FS. What callers stored is nobody else's to read.
func (g *walGuard) MkdirAll(dir string, _ os.FileMode) error { return g.FS.MkdirAll(dir, 0o700) }

// Unwrap implements vfs.FS.
func (g *walGuard) Unwrap() vfs.FS { return g.FS }

// walFile is a file of the log.
type walFile struct {
	vfs.File
	guard *walGuard
}

func (f *walFile) Write(p []byte) (int, error) {
	if !f.guard.dead.Load() {
		_, err := f.File.Write(p)
		f.guard.check("writing the log", err)
	}
	return len(p), nil
}

func (f *walFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *walFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *walFile) sync(do func() error) error {
	if !f.guard.dead.Load() {
		f.guard.check("syncing the log", do())
	}
	return nil
}

func (f *walFile) SyncTo(length int64) (fullSync bool, err error) {
	if !f.guard.dead.Load() {
		fullSync, err = f.File.SyncTo(length)
		f.guard.check("syncing the log", err)
	}
	return fullSync, nil
}

// Close closes the file.
func (f *walFile) Close() error {
	err := f.File.Close()
	if !f.guard.dead.Load() {
		f.guard.check("closing the log", err)
	}
	return nil
}

// Preallocate is only a hint: a failure shows when the space is really needed.
func (f *walFile) Preallocate(offset, length int64) error {
	if !f.guard.dead.Load() {
		_ = f.File.Preallocate(offset, length)
	}
	return nil
}

// deadFile stands in for a log that could not be created.
type deadFile struct{ name string }

var errDead = errors.New("the store has failed")

func (deadFile) Close() error                            { return nil }
func (deadFile) Read([]byte) (int, error)                { return 0, errDead }
func (deadFile) ReadAt([]byte, int64) (int, error)       { return 0, errDead }
func (deadFile) Write(p []byte) (int, error)             { return len(p), nil }
func (deadFile) WriteAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (deadFile) Preallocate(int64, int64) error          { return nil }
func (f deadFile) Stat() (vfs.FileInfo, error)           { return deadInfo(f), nil }
func (deadFile) Sync() error                             { return nil }
func (deadFile) SyncTo(int64) (fullSync bool, err error) { return true, nil }
func (deadFile) SyncData() error                         { return nil }
func (deadFile) Prefetch(int64, int64) error             { return nil }
func (deadFile) Fd() uintptr                             { return vfs.InvalidFd }

type deadInfo struct{ name string }

func (i deadInfo) Name() string         { return i.name }
func (deadInfo) Size() int64            { return 0 }
func (deadInfo) Mode() os.FileMode      { return 0 }
func (deadInfo) ModTime() time.Time     { return time.Time{} }
func (deadInfo) IsDir() bool            { return false }
func (deadInfo) Sys() any               { return nil }
func (deadInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

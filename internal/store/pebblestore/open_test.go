package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestASecondOpenerIsRefused(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(filepath.Dir(dir))
	for name, options := range map[string][2]Options{
		"on disk":            {{Dir: dir}, {Dir: dir}},
		"under another name": {{Dir: dir}, {Dir: filepath.Base(dir) + "/."}},
		"in memory":          twice(Options{Dir: "data", FS: vfs.NewMem()}),
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, silent(options[0]))
			defer mustClose(t, s)
			second, err := Open(context.Background(), silent(options[1]))
			if err == nil {
				mustClose(t, second)
				t.Fatal("it was let in")
			}
			for _, part := range []string{filepath.Base(options[0].Dir), "in use by another process", "directory of its own"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if outcome := s.Apply(context.Background(), []reservation.Command{storetest.Reserve(storetest.At("key"), 1)})[0]; !isOwned(outcome) {
				t.Errorf("the first one is disturbed: %v", outcome)
			}
		})
	}
}

func twice(o Options) [2]Options { return [2]Options{o, o} }

func isOwned(outcome reservation.Outcome) bool {
	_, is := outcome.(*reservation.Owned)
	return is
}

// TestADirectoryOfALaterVersionIsRefused and left as it is.
func TestADirectoryOfALaterVersionIsRefused(t *testing.T) {
	options := silent(Options{Dir: "data", FS: vfs.NewMem()})
	s := mustOpen(t, options)
	if err := s.db.Set(metaKey(metaFormat), bigEndian(layout+1), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	for range 2 { // also the second time
		s, err := Open(context.Background(), options)
		if err == nil {
			mustClose(t, s)
			t.Fatal("it was opened")
		}
		for _, part := range []string{`"data"`, "later version of idemd", fmt.Sprint("layout ", layout+1), "backup"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
}

func TestADirectoryThatCantBeUsedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(context.Background(), silent(Options{Dir: file}))
	if err == nil {
		mustClose(t, s)
		t.Fatal("a file was opened as a directory")
	}
	if !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "in use") {
		t.Errorf("the error is %v", err)
	}
}

// TestANewDirectoryIsForItsOwnerOnly: it holds what callers were answered.
func TestANewDirectoryIsForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	mustClose(t, mustOpen(t, silent(Options{Dir: dir})))
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestWherePebbleCantGoOnTheProcessEnds instead of going on with half a store.
func TestWherePebbleCantGoOnTheProcessEnds(t *testing.T) {
	code := 0
	pebbleLogger{discard(), func(c int) { code = c }}.Fatalf("can't go on")
	if code != 1 {
		t.Errorf("it ends with %d", code)
	}
}

// TestALogThatCantBeMadeRefusesTheOpening instead of opening a store that is dead.
func TestALogThatCantBeMadeRefusesTheOpening(t *testing.T) {
	s, err := Open(context.Background(), silent(Options{Dir: "data", FS: noLogFS{vfs.NewMem()}}))
	if err == nil {
		mustClose(t, s)
		t.Fatal("it was opened")
	}
	if !errors.Is(err, fs.ErrPermission) {
		t.Errorf("the error is %v", err)
	}
}

type noLogFS struct{ vfs.FS }

func (f noLogFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == walCategory {
		return nil, fs.ErrPermission
	}
	return f.FS.Create(name, category)
}

// TestTheSettingsInForce reads the settings that Pebble itself wrote down.
func TestTheSettingsInForce(t *testing.T) {
	disk := vfs.NewMem()
	s := mustOpen(t, silent(Options{Dir: "data", FS: disk}))
	defer mustClose(t, s)
	if got := s.db.FormatMajorVersion(); got != formatVersion {
		t.Errorf("format %v, want %v", got, formatVersion)
	}
	settings := settingsOf(t, disk, "data")
	for _, want := range []string{
		"comparer=leveldb.BytewiseComparator",
		"disable_wal=false",
		"wal_bytes_per_sync=524288",
		"mem_table_size=33554432",
		"mem_table_stop_writes_threshold=4",
		"l0_compaction_threshold=2",
		"l0_stop_writes_threshold=64",
		"cache_size=67108864",
		"filter_policy=rocksdb.BuiltinBloomFilter",
		"filter_type=table",
	} {
		if !strings.Contains(settings, "\n  "+want+"\n") {
			t.Errorf("%s is not in force", want)
		}
	}
	for _, not := range []string{"filter_policy=none", "read_only=true", "wal_min_sync_interval"} {
		if strings.Contains(settings, "  "+not) {
			t.Errorf("%s is in force", not)
		}
	}
	if t.Failed() {
		t.Log(settings)
	}
}

func settingsOf(t *testing.T, disk vfs.FS, dir string) string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "OPTIONS-") {
			return readFile(t, disk, disk.PathJoin(dir, name))
		}
	}
	t.Fatal("there are no settings")
	return ""
}

func readFile(t *testing.T, disk vfs.FS, name string) string {
	t.Helper()
	info, err := disk.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, info.Size())
	_, err = io.ReadFull(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return string(content)
}

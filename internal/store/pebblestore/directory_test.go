package pebblestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// mustNotOpen fails the test if a store is opened, or if its refusal does not say parts.
func mustNotOpen(t *testing.T, options Options, parts ...string) {
	t.Helper()
	s, err := Open(context.Background(), options)
	if err == nil {
		mustClose(t, s)
		t.Fatal("it was opened")
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// contents are the names and contents of a directory's files.
func contents(t *testing.T, disk vfs.FS, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range namesIn(t, disk, dir) {
		fmt.Fprintf(&all, "%s %x\n", name, sha256.Sum256([]byte(readFile(t, disk, disk.PathJoin(dir, name)))))
	}
	return all.String()
}

func namesIn(t *testing.T, disk vfs.FS, dir string) []string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// newest is the file of a kind that was begun last.
func newest(t *testing.T, disk vfs.FS, dir, part string) string {
	t.Helper()
	last := ""
	for _, name := range namesIn(t, disk, dir) {
		if strings.HasPrefix(name, part) || strings.HasSuffix(name, part) {
			last = max(last, name)
		}
	}
	if last == "" {
		t.Fatalf("there is no %s", part)
	}
	return disk.PathJoin(dir, last)
}

// overwrite replaces what a file holds.
func overwrite(t *testing.T, disk vfs.FS, name string, content []byte) {
	t.Helper()
	file, err := disk.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	// It may change what it is given.
	if _, err := file.Write(bytes.Clone(content)); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// filled applies operations of some bytes each, and returns what is on disk afterwards,
// as kill -9 leaves it.
func filled(t *testing.T, operations, bytes int) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, silent(Options{Dir: "data", FS: disk}))
	defer mustClose(t, s)
	for n := range operations {
		a := storetest.At(fmt.Sprint(n))
		complete := storetest.Complete(a, n, "")
		complete.Result.Body = noise(n, bytes)
		s.Apply(context.Background(), []reservation.Command{storetest.Reserve(a, n), complete})
	}
	return disk.CrashClone(vfs.CrashCloneCfg{})
}

// TestDamageToTheFirstLogIsFoundOut: the log that a new store answers by is of a format
// in which damage can be told from a torn end.
func TestDamageToTheFirstLogIsFoundOut(t *testing.T) {
	disk := filled(t, 150, 1000) // less than what begins the next log
	name := newest(t, disk, "data", ".log")
	log := []byte(readFile(t, disk, name))
	const typeAt, walSyncFull, walSyncLast = 6, 9, 12
	if kind := log[typeAt]; kind < walSyncFull || kind > walSyncLast {
		t.Errorf("the log has chunks of type %d", kind)
	}
	written := len(bytes.TrimRight(log, "\x00"))
	if written < 4*chunkBlock {
		t.Fatalf("only %d bytes are in the log", written)
	}
	log[written/4] ^= 1
	overwrite(t, disk, name, log)
	mustNotOpen(t, silent(Options{Dir: "data", FS: disk}), `"data"`)
}

// TestAStoreWithoutItsManifestIsRefused instead of being taken for a new one, and its
// files deleted.
func TestAStoreWithoutItsManifestIsRefused(t *testing.T) {
	for _, gone := range []string{"marker.manifest", "marker", "."} {
		disk := filled(t, 3, 100)
		for _, name := range namesIn(t, disk, "data") {
			// "." leaves the manifest and the settings, "marker" also logs and tables.
			if strings.Contains(name, gone) {
				if err := disk.Remove(disk.PathJoin("data", name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := contents(t, disk, "data")
		mustNotOpen(t, silent(Options{Dir: "data", FS: disk}), `"data"`, "manifest", "backup")
		if after := contents(t, disk, "data"); after != before {
			t.Errorf("without %s* it was touched:\n%s\nnow\n%s", gone, before, after)
		}
	}
}

// TestADirectoryOfOtherFilesIsRefused, but not one that only looks used.
func TestADirectoryOfOtherFilesIsRefused(t *testing.T) {
	for name, allowed := range map[string]bool{
		"thesis.txt": false, "lost+found": true, ".keep": true, "LOCK": true,
		"MANIFEST-000001": true, // a first start was cut off
		"MANIFEST-000002": false, "000002.log": false, "000004.sst": false,
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			if err := disk.MkdirAll("data", 0o700); err != nil {
				t.Fatal(err)
			}
			overwrite(t, disk, "data/"+name, nil)
			options := silent(Options{Dir: "data", FS: disk})
			if allowed {
				mustClose(t, mustOpen(t, options))
				return
			}
			mustNotOpen(t, options, name)
			if names := namesIn(t, disk, "data"); len(names) != 1 {
				t.Errorf("it was touched: %v", names)
			}
		})
	}
}

// TestAStoreThatMustExistIsNotMade, nor one that is only to be read.
func TestAStoreThatMustExistIsNotMade(t *testing.T) {
	for _, options := range []Options{{MustExist: true}, {ReadOnly: true}} {
		disk := vfs.NewMem()
		options.Dir, options.FS = "data", disk
		mustNotOpen(t, silent(options), `"data"`, "no store")
		if names := namesIn(t, disk, ""); len(names) != 0 {
			t.Errorf("it made %v", names)
		}
	}
}

// TestAStoreOpenedToBeReadIsLeftAsItIs, answers questions and refuses changes.
func TestAStoreOpenedToBeReadIsLeftAsItIs(t *testing.T) {
	disk := filled(t, 5, 100)
	before := contents(t, disk, "data")
	s := mustOpen(t, silent(Options{Dir: "data", FS: disk, ReadOnly: true}))
	report, err := s.Check(context.Background())
	if err != nil || report.Records != 5 || report.FaultCount != 0 {
		t.Errorf("Check: %+v, %v", report, err)
	}
	mustBeUnavailable(t, s.Apply(context.Background(), []reservation.Command{storetest.Reserve(storetest.At("new"), 1)})[0])
	if _, err := s.Sweep(context.Background(), 10); err == nil {
		t.Error("it was swept")
	}
	if held := stored(t, s); len(held) != 5 {
		t.Errorf("%d records, want 5", len(held))
	}
	mustClose(t, s)
	if after := contents(t, disk, "data"); after != before {
		t.Errorf("it was changed:\n%s\nnow\n%s", before, after)
	}
}

package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestNoFlippedBitInTheManifestLosesTables: each is refused, but for the length of the
// last record, which makes it look torn.
func TestNoFlippedBitInTheManifestLosesTables(t *testing.T) {
	disk := vfs.NewCrashableMem()
	options := silent(Options{Dir: "data", FS: disk})
	s := mustOpen(t, options)
	for n := range 4 { // a record and a table each
		s.Apply(context.Background(), []reservation.Command{storetest.Reserve(storetest.At(fmt.Sprint(n)), n)})
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	told := stored(t, s)
	disk = disk.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, s)

	name := newest(t, disk, "data", "MANIFEST-")
	manifest := []byte(readFile(t, disk, name))
	last := 0
	for next := 0; next < len(manifest); {
		last, next = next, next+chunkSize(manifest[next:])
	}
	for at := range manifest {
		damaged := bytes.Clone(manifest)
		damaged[at] ^= 2 << (at % 7) // never makes the last byte zero, as a torn one is
		err := checkManifest(bytes.NewReader(damaged))
		if err == nil && at != last+4 && at != last+5 {
			t.Errorf("a flipped bit in byte %d of %d passes", at, len(manifest))
		}
	}
	manifest[len(manifest)/2] ^= 1
	overwrite(t, disk, name, manifest)
	before := contents(t, disk, "data")
	options.FS = disk
	mustNotOpen(t, options, `"data"`, "manifest is damaged", "backup")
	if after := contents(t, disk, "data"); after != before {
		t.Error("it was touched")
	}
	manifest[len(manifest)/2] ^= 1
	overwrite(t, disk, name, manifest)
	s = mustOpen(t, options)
	mustHoldAll(t, s, told)
	mustClose(t, s)
}

// TestATornEndOfTheManifestPasses, wherever the power was cut: what is behind is missing,
// or sectors of it are empty. A manifest of several blocks is read to its end.
func TestATornEndOfTheManifestPasses(t *testing.T) {
	for _, size := range []int{1, 100, 600, 40_000, 100_000} {
		var file bytes.Buffer
		w := record.NewWriter(&file)
		synced := 0
		for n := range 4 {
			if _, err := w.WriteRecord(bytes.Repeat([]byte{byte(n + 1)}, size)); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if n == 2 {
				synced = file.Len()
			}
		}
		manifest := file.Bytes()
		check := func(what string, torn []byte) {
			if err := checkManifest(bytes.NewReader(torn)); err != nil {
				t.Errorf("records of %d bytes, %s: %v", size, what, err)
			}
		}
		check("whole", manifest)
		for end := synced; end < len(manifest); end += 1 + size/97 {
			check(fmt.Sprint("cut off at ", end), manifest[:end])
			zeros := bytes.Clone(manifest)
			clear(zeros[end:])
			check(fmt.Sprint("zeros from ", end), zeros)
		}
		for at := synced / sector * sector; at < len(manifest); at += sector {
			hole := bytes.Clone(manifest)
			clear(hole[max(at, synced):min(at+sector, len(manifest))])
			check(fmt.Sprint("an empty sector at ", at), hole)
		}
		damaged := bytes.Clone(manifest)
		binary.LittleEndian.PutUint16(damaged[4:], 0xffff) // the first length
		if checkManifest(bytes.NewReader(damaged)) == nil {
			t.Errorf("records of %d bytes: damage to the first passes", size)
		}
	}
}

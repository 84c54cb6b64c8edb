package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// manifestMarker begins the name of the file that says which manifest is in force. It is
// there as soon as a store is, and before its first log.
const manifestMarker = "marker.manifest."

// survey looks at a directory before anything in it is touched, and tells whether it
// holds a store. It refuses one that must not be made into a new store: Pebble would
// take it for one, and delete what it finds.
func survey(disk vfs.FS, dir string, mustExist bool) (exists bool, err error) {
	names, err := disk.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	var left, foreign []string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, manifestMarker):
			return true, nil
		case name == "LOCK" || name == "lost+found" || strings.HasPrefix(name, "."):
		case isPebbles(name):
			left = append(left, name)
		default:
			foreign = append(foreign, name)
		}
	}
	switch {
	case len(left) == 1 && left[0] == "MANIFEST-000001" && !mustExist:
		return false, nil // a first start that a crash cut off: nothing was ever written
	case len(left) > 0:
		return false, fmt.Errorf("it holds %s, but no file %s… that says which manifest is in force: the store is damaged; nothing was touched: restore a backup", left[0], manifestMarker)
	case mustExist:
		return false, errors.New("there is no store in it")
	case len(foreign) > 0:
		return false, fmt.Errorf("it holds no store, but other files (%s): give the store a directory of its own", foreign[0])
	}
	return false, nil
}

// isPebbles tells whether a file is one of a store's, by its name.
func isPebbles(name string) bool {
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "CURRENT", "marker."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{".sst", ".log", ".blob", ".dbtmp"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// inspect looks at a store before Pebble does. Its lock is held. It returns the format
// that the store is in.
func inspect(disk vfs.FS, dir string) (pebble.FormatMajorVersion, error) {
	desc, err := pebble.Peek(dir, disk)
	if err != nil {
		return 0, err
	}
	if !desc.Exists { // survey saw the marker
		return 0, fmt.Errorf("its manifest marker can't be read: restore a backup")
	}
	file, err := disk.Open(desc.ManifestFilename)
	if err != nil {
		return 0, fmt.Errorf("its manifest is missing: restore a backup (%w)", err)
	}
	err = checkManifest(file)
	return desc.FormatMajorVersion, errors.Join(err, file.Close())
}

package pgtest

import (
	"os"
	"path/filepath"
	"syscall"
)

const dirPrefix = "idemd-pgtest-"

// claim marks the directory as in use by this process. The kernel lets go of the
// lock when the process dies, however it dies.
func claim(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// removeLeftovers deletes what test binaries left that were killed before they could
// clean up: their servers are gone, their directories are not.
func removeLeftovers() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		// No lock file: somebody is just making this directory.
		file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		file.Close()
	}
}

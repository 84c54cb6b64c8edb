package pgtest

import (
	"os"
	"path/filepath"
	"strings"
)

// linkLibraries makes the short names of shared libraries (libx.so.1 of libx.so.1.2)
// in a directory of ours. Archives of PostgreSQL's programs in package registries that
// keep no symbolic links lack them, and their own directory may not be writable.
func linkLibraries(libraries, into string) error {
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(libraries, "*.so.*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		for name := filepath.Base(file); strings.Contains(name, ".so."); {
			name = name[:strings.LastIndexByte(name, '.')]
			if _, err := os.Lstat(filepath.Join(into, name)); err == nil {
				continue
			}
			if err := os.Symlink(file, filepath.Join(into, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

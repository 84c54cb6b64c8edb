package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinVariable names the environment variable that holds the directory of the
// PostgreSQL programs to test with.
const BinVariable = "IDEMD_TEST_POSTGRES_BIN"

// OldestMajor is the oldest major version of PostgreSQL that idemd works with.
const OldestMajor = 15

// programs are the executables of one PostgreSQL installation.
type programs struct {
	dir string
	// libraries is where the installation keeps its shared libraries, if its
	// programs may not find them by themselves.
	libraries string
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

func (p programs) environ() []string {
	env := append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC")
	if p.libraries != "" {
		env = append(env, "LD_LIBRARY_PATH="+p.libraries)
	}
	return env
}

func (p programs) complete() bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(p.path(name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

// find looks where the variable says, else asks pg_config, else takes the newest of
// the places where distributions put it, else what PATH has.
func find() (programs, error) {
	if dir := os.Getenv(BinVariable); dir != "" {
		dir, err := filepath.Abs(dir)
		if err != nil {
			return programs{}, err
		}
		found := programs{dir: dir, libraries: filepath.Join(filepath.Dir(dir), "lib")}
		if !found.complete() {
			return programs{}, fmt.Errorf("%s is %s, which lacks initdb or postgres", BinVariable, dir)
		}
		return found, nil
	}
	for _, dir := range candidates() {
		if found := (programs{dir: dir}); found.complete() && found.major() >= OldestMajor {
			return found, nil
		}
	}
	return programs{}, errors.New("these tests need PostgreSQL " + strconv.Itoa(OldestMajor) +
		" or newer: install its server (Debian, Ubuntu: apt install postgresql; macOS: brew install postgresql) " +
		"or set " + BinVariable + " to the directory of initdb and postgres")
}

func candidates() []string {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	dirs = append(dirs, installed()...)
	if path, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	return dirs
}

// installed lists the directories of Debian's packages, newest first.
func installed() []string {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	version := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	return dirs
}

// major asks the server program for its version: "postgres (PostgreSQL) 17.2 (…)".
func (p programs) major() int {
	out, err := exec.Command(p.path("postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return 0
	}
	digits := fields[2]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, _ := strconv.Atoi(digits)
	return n
}

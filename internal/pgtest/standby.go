package pgtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// StandbyName is what a standby calls itself: what synchronous_standby_names waits for.
const StandbyName = "standby"

// Standby starts a server that replicates this one, which is stopped while its data are
// copied, and is started again: from then on it acknowledges nothing that the standby has
// not flushed. The standby is gone when the test ends.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	s.Stop()
	standby := &Server{programs: s.programs, account: s.account, settings: append([]string{"hot_standby=on"}, s.settings...)}
	t.Cleanup(standby.remove)
	if err := standby.follow(s); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	s.settings = append(s.settings, "synchronous_standby_names="+StandbyName)
	for _, server := range []*Server{s, standby} {
		if err := server.Start(); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	return standby
}

// follow makes the data directory of a standby from that of a stopped server.
func (s *Server) follow(primary *Server) (err error) {
	if s.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if s.claim, err = claim(s.dir); err != nil {
		return err
	}
	if err := os.CopyFS(s.data(), os.DirFS(primary.data())); err != nil {
		return err
	}
	s.settings = append(s.settings, fmt.Sprintf(
		"primary_conninfo=host=127.0.0.1 port=%d user=postgres application_name=%s", primary.port, StandbyName))
	if err := os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o600); err != nil {
		return err
	}
	return filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if err := os.Chmod(path, 0o700); err != nil {
				return err
			}
		}
		return s.account.own(path)
	})
}

// Promote makes a standby a server of its own, which takes writes.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if rows, err := s.Exec("postgres", "SELECT pg_promote()"); err != nil || rows[0][0] != "t" {
		t.Fatalf("pgtest: the standby can't be promoted: %v %v", rows, err)
	}
}

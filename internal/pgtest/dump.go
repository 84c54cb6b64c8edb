package pgtest

import (
	"fmt"
	"os/exec"
	"testing"
)

// Backup is what pg_dump makes of a database, in its custom format.
func (s *Server) Backup(t testing.TB, database string) []byte {
	t.Helper()
	cmd := exec.Command(s.programs.path("pg_dump"), "--format=custom", "--dbname="+s.DSN(database))
	cmd.Env = s.programs.environ()
	backup, err := cmd.Output()
	if err != nil {
		t.Fatalf("pgtest: pg_dump: %v", describe(err))
	}
	return backup
}

// Restore has pg_restore put a backup into an empty database.
func (s *Server) Restore(t testing.TB, database string, backup []byte) {
	t.Helper()
	cmd := exec.Command(s.programs.path("pg_restore"), "--exit-on-error", "--dbname="+s.DSN(database))
	cmd.Env = s.programs.environ()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	go func() {
		_, _ = in.Write(backup)
		_ = in.Close()
	}()
	if _, err := cmd.Output(); err != nil {
		t.Fatalf("pgtest: pg_restore: %v", describe(err))
	}
}

func describe(err error) error {
	if exit, is := err.(*exec.ExitError); is { //nolint:errorlint // it is what Output returns
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}

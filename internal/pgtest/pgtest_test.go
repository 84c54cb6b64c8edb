package pgtest

import (
	"testing"
	"time"
)

func TestAServerAnswersKeepsItsDataAndEndsWithTheTest(t *testing.T) {
	s := Start(t)
	database := s.Database(t, "")
	must(t, s, database, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")

	s.Stop()
	if _, err := s.Exec(database, "SELECT 1"); err == nil {
		t.Fatal("a stopped server answered")
	}
	restart(t, s)
	must(t, s, database, "INSERT INTO kept VALUES (2)")

	s.Kill()
	restart(t, s)
	if rows := must(t, s, database, "SELECT count(*) FROM kept"); rows[0][0] != "2" {
		t.Fatalf("after kill -9 there are %s rows, want 2", rows[0][0])
	}
	if rows := must(t, s, database, "SHOW fsync"); rows[0][0] != "on" {
		t.Fatalf("fsync is %s: the tests would prove nothing", rows[0][0])
	}

	postmaster := s.daemon.pid()
	s.remove()
	if !gone(postmaster) {
		t.Fatal("the server outlives the test")
	}
}

func TestAPausedServerIsSilentAndGoesOnWhenResumed(t *testing.T) {
	s := Start(t)
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, err := s.Exec("postgres", "SELECT 1")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.Resume()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
}

func TestADatabaseIsACopyOfItsTemplate(t *testing.T) {
	s := Start(t)
	template := s.Database(t, "")
	must(t, s, template, "CREATE TABLE copied (n int); INSERT INTO copied VALUES (7)")
	if rows := must(t, s, s.Database(t, template), "SELECT n FROM copied"); rows[0][0] != "7" {
		t.Fatalf("got %v", rows)
	}
}

func TestARefusedStatementIsAnError(t *testing.T) {
	s := Start(t)
	if _, err := s.Exec("postgres", "SELECT nonsense"); err == nil {
		t.Fatal("no error")
	}
}

func must(t *testing.T, s *Server, database, statements string) [][]string {
	t.Helper()
	rows, err := s.Exec(database, statements)
	if err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return rows
}

func restart(t *testing.T, s *Server) {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

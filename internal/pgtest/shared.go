package pgtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// Shared is one server for all tests of a package. It starts when the first test
// asks for it. Use:
//
//	var postgres pgtest.Shared
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Run runs the tests and removes the server.
func (s *Shared) Run(m *testing.M) int {
	defer func() {
		if s.server != nil {
			s.server.remove()
		}
	}()
	return m.Run()
}

// Server is the shared server. Tests must not stop, kill or pause it.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	s.once.Do(func() { s.server, s.err = create() })
	if s.err != nil {
		t.Fatalf("pgtest: %v", s.err)
	}
	return s.server
}

// names hands out names of databases.
type names struct{ last atomic.Int64 }

// Database makes a database of the test's own and returns its name; it is dropped
// when the test ends. With a template it is a copy of that database, which nobody
// may be connected to.
func (s *Server) Database(t testing.TB, template string) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.names.last.Add(1))
	if template == "" {
		template = "template0"
	}
	if _, err := s.Exec("postgres", fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template)); err != nil {
		t.Fatalf("pgtest: can't create a database: %v", err)
	}
	t.Cleanup(func() {
		// A test may have stopped its server: then there is nothing to drop.
		_, _ = s.Exec("postgres", fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name))
	})
	return name
}

package pgtest

// New starts a server for a program that is no test, such as a benchmark. The caller
// calls Remove at its end.
func New(options ...Option) (*Server, error) { return create(options...) }

// Remove ends the server and deletes its data.
func (s *Server) Remove() { s.remove() }

// Processes are the server's process and those of its connections and workers, itself
// first; none where it does not run. Beyond Linux only itself is known.
func (s *Server) Processes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon == nil {
		return nil
	}
	return append([]int{s.daemon.pid()}, children(s.daemon.pid())...)
}

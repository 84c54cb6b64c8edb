package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit bounds how long a server may take until it answers, and to stop.
const startLimit = 60 * time.Second

// Server is one PostgreSQL server with its data in a directory of its own. It
// listens on 127.0.0.1 and on a socket in that directory; everybody is let in as
// user postgres. fsync is on, as in production.
type Server struct {
	programs programs
	account  account
	dir      string
	port     int
	settings []string
	claim    *os.File

	names  names
	mu     sync.Mutex
	daemon *daemon // nil = not running
}

// Option changes how a server is set up.
type Option func(*Server)

// Setting gives one setting of postgresql.conf, such as "max_connections=20".
func Setting(assignment string) Option {
	return func(s *Server) { s.settings = append(s.settings, assignment) }
}

// Start starts a server of the test's own; it is gone when the test ends.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s, err := create(options...)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(s.remove)
	return s
}

// create makes the data directory and starts the server.
func create(options ...Option) (*Server, error) {
	s := &Server{settings: []string{"max_connections=200", "log_min_messages=fatal"}}
	for _, option := range options {
		option(s)
	}
	var err error
	if s.programs, err = find(); err != nil {
		return nil, err
	}
	if s.account, err = chooseAccount(); err != nil {
		return nil, err
	}
	if err = s.initialize(); err == nil {
		err = s.Start()
	}
	if err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// initialize makes the data directory. It lies directly in the system's directory
// for temporary files, because the paths of sockets are bounded to 107 bytes.
func (s *Server) initialize() (err error) {
	removeLeftovers()
	if s.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if s.claim, err = claim(s.dir); err != nil {
		return err
	}
	if err = s.account.own(s.dir); err != nil {
		return err
	}
	if s.programs.libraries != "" {
		links := filepath.Join(s.dir, "lib")
		if err := linkLibraries(s.programs.libraries, links); err != nil {
			return err
		}
		s.programs.libraries += string(os.PathListSeparator) + links
	}
	cmd := exec.Command(s.programs.path("initdb"), "--pgdata="+s.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env = s.dir, s.programs.environ()
	// Not the attributes that end it with its parent: those hang on the thread that
	// starts it, and this one is waited for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account.credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb (may the user that runs it read and execute %s?): %w\n%s", s.programs.dir, err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// DSN is the address of a database on this server.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Address(), database)
}

// Address is the host and port on which the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Start starts a stopped or killed server again, on the same port.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != nil {
		return errors.New("the server runs already")
	}
	var err error
	for range 5 { // another process may take the port between its choice and its use
		if s.port == 0 {
			if s.port, err = freePort(); err != nil {
				return err
			}
		}
		if s.daemon, err = s.launch(); err == nil {
			return nil
		}
	}
	return err
}

func (s *Server) launch() (*daemon, error) {
	args := []string{"-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := exec.Command(s.programs.path("postgres"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.dir, s.programs.environ(), s.account.attributes()
	d, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(d); err != nil {
		d.kill()
		return nil, err
	}
	return d, nil
}

// awaitReady waits until the server itself notes in its pid file that it answers,
// which is what pg_ctl waits for too.
func (s *Server) awaitReady(d *daemon) error {
	deadline := time.Now().Add(startLimit)
	for pause := time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 50*time.Millisecond) {
		data, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
		lines := strings.Split(string(data), "\n")
		if len(lines) > 7 && lines[0] == strconv.Itoa(d.pid()) && strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
		select {
		case <-d.ended:
			return fmt.Errorf("the server ended while it started: %s", d.output.String())
		case <-time.After(pause):
		}
	}
	return fmt.Errorf("the server was not ready within %v", startLimit)
}

// Stop stops the server the fast way: transactions under way are rolled back.
func (s *Server) Stop() {
	if d := s.take(); d != nil {
		d.stop()
	}
}

// Kill ends the server and all its backends as a crash would (kill -9).
func (s *Server) Kill() {
	if d := s.take(); d != nil {
		d.kill()
	}
}

func (s *Server) take() *daemon {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.daemon
	s.daemon = nil
	return d
}

// Pause freezes the server and all its backends, as a machine under extreme load or
// a cut network looks from outside; Resume lets them go on.
func (s *Server) Pause() { s.signalAll(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() { s.signalAll(syscall.SIGCONT) }

func (s *Server) signalAll(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != nil {
		s.daemon.signalAll(signal)
	}
}

// remove ends the server and deletes its data.
func (s *Server) remove() {
	if d := s.take(); d != nil {
		d.kill() // its data are deleted: nothing to shut down cleanly
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	if s.claim != nil {
		_ = s.claim.Close()
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// daemon is a running server process.
type daemon struct {
	cmd    *exec.Cmd
	output *bytes.Buffer // not to be read before the end
	ended  chan struct{}
}

// start runs the command from a goroutine that keeps its thread until the end: the
// kernel signals a child when the thread that made it ends, not the process.
func start(cmd *exec.Cmd) (*daemon, error) {
	d := &daemon{cmd: cmd, output: new(bytes.Buffer), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = d.output, d.output
	// A backend that outlives a killed postmaster holds the pipe open.
	cmd.WaitDelay = time.Second
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(d.ended)
		}
	}()
	return d, <-started
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) stop() {
	_ = d.cmd.Process.Signal(syscall.SIGCONT)
	_ = d.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-d.ended:
	case <-time.After(startLimit):
		d.kill()
	}
}

// kill waits until the last backend is gone: a server doesn't start beside backends
// of the one before.
func (d *daemon) kill() {
	d.halt()
	pids := append(children(d.pid()), d.pid())
	_ = d.cmd.Process.Kill()
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-d.ended
	deadline := time.Now().Add(startLimit)
	for _, pid := range pids {
		for !gone(pid) && time.Now().Before(deadline) {
			<-time.After(time.Millisecond)
		}
	}
}

// halt stops the server's own process, so that it makes no backend while they are counted:
// one that is missed outlives the server, for ever where it waits for a lock of a dead one.
func (d *daemon) halt() {
	_ = d.cmd.Process.Signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(time.Second); !stopped(d.pid()) && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
}

func (d *daemon) signalAll(signal syscall.Signal) {
	for _, pid := range append(children(d.pid()), d.pid()) {
		_ = syscall.Kill(pid, signal)
	}
}

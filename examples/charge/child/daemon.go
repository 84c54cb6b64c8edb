package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startLimit bounds how long a daemon may take until it answers.
const startLimit = 60 * time.Second

// Daemon is an idemd that runs as a child process. Its addresses stay the same over
// restarts. Safe for use by several goroutines.
type Daemon struct {
	program string
	args    []string
	// GRPC and HTTP are the addresses it listens on, host:port.
	GRPC, HTTP string

	mu      sync.Mutex
	process *process // nil = not running
}

// Start runs "program serve" with the flags that choose its store, on free ports of
// 127.0.0.1, and returns once it answers.
func Start(program string, flags ...string) (*Daemon, error) {
	var last error
	for range 5 { // another process may take a port between its choice and its use
		grpc, err := freeAddress()
		if err != nil {
			return nil, err
		}
		http, err := freeAddress()
		if err != nil {
			return nil, err
		}
		d := &Daemon{program: program, GRPC: grpc, HTTP: http}
		d.args = append([]string{"serve", "--grpc-addr", grpc, "--http-addr", http}, flags...)
		if last = d.Restart(); last == nil {
			return d, nil
		}
	}
	return nil, last
}

// Restart starts a daemon that was killed or stopped.
func (d *Daemon) Restart() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		return errors.New("the daemon runs already")
	}
	p, err := launch(d.program, d.args)
	if err != nil {
		return err
	}
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.ready:
		d.process = p
		return nil
	case <-p.ended:
		return fmt.Errorf("the daemon ended before it answered: %v\n%s", p.cmd.ProcessState, p.log())
	case <-limit.C:
		p.kill()
		return fmt.Errorf("the daemon did not answer within %v:\n%s", startLimit, p.log())
	}
}

// Kill is kill -9. It returns when the process is gone; one that does not run is left
// alone.
func (d *Daemon) Kill() {
	if p := d.take(); p != nil {
		p.kill()
	}
}

// Stop asks the daemon to drain and end (SIGTERM) and tells how it ended.
func (d *Daemon) Stop() error {
	p := d.take()
	if p == nil {
		return errors.New("the daemon does not run")
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.ended:
	case <-limit.C:
		p.kill()
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("the daemon ended with %v:\n%s", p.cmd.ProcessState, p.log())
	}
	return nil
}

// Pause freezes the daemon: its connections stay open and nothing is answered. Resume
// lets it go on.
func (d *Daemon) Pause() { d.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (d *Daemon) Resume() { d.signal(syscall.SIGCONT) }

// Log is the end of what the daemon has logged since it was started.
func (d *Daemon) Log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return ""
	}
	return d.process.log()
}

func (d *Daemon) signal(s syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process != nil {
		_ = d.process.cmd.Process.Signal(s)
	}
}

func (d *Daemon) take() *process {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.process
	d.process = nil
	return p
}

// process is one run of the daemon.
type process struct {
	cmd          *exec.Cmd
	ready, ended chan struct{}

	mu    sync.Mutex
	lines []string
}

// launch starts the program from a goroutine that keeps its thread until the end: the
// kernel signals a child when the thread that made it ends, not the process.
func launch(program string, args []string) (*process, error) {
	p := &process{cmd: exec.Command(program, args...), ready: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.SysProcAttr = attributes()
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.follow(stderr)
		}
	}()
	return p, <-started
}

// follow reads the log to its end, which is the end of the process.
func (p *process) follow(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.note(lines.Text())
		var entry struct{ Msg string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "idemd answers" {
			close(p.ready)
		}
	}
	_, _ = io.Copy(io.Discard, stderr) // a line too long for the scanner must not block the daemon
	_ = p.cmd.Wait()
	close(p.ended)
}

func (p *process) note(line string) {
	const most = 200
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines = append(p.lines, line); len(p.lines) > most {
		p.lines = p.lines[1:]
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// freeAddress picks a port below those that systems hand to outgoing connections: one
// of these could take it while the daemon is down.
func freeAddress() (string, error) {
	var last error
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
		last = err
	}
	return "", last
}

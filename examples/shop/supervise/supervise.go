package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// pause is how long a process that has died stays down.
	pause = 100 * time.Millisecond
	// A process that has ended by itself mostQuick times in a row within quick of its start
	// will not get any better.
	quick     = time.Second
	mostQuick = 20
	// stopLimit is how long a process may take to end when it is asked to.
	stopLimit = 5 * time.Second
	// listenerFD is where a child finds its listener.
	listenerFD = 3
)

// Process is a program to keep running.
type Process struct {
	Name, Program string
	Args          []string
	// Env is added to the environment. What is secret belongs here: other users can read
	// arguments.
	Env []string
	// Listener, if it is set, is passed on: see [Listener]. It stays open while the process
	// is down, so that nobody takes its port, and callers wait instead of being refused.
	Listener *net.TCPListener
}

// Listener is the one that this process was given by its supervisor.
func Listener() (net.Listener, error) {
	file := os.NewFile(listenerFD, "listener")
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("there is no listener to serve on: %w", err)
	}
	return listener, nil
}

// Group is a set of processes that are kept running.
type Group struct {
	processes []Process
	logs      io.Writer
	log       *slog.Logger

	mu      sync.Mutex
	running map[string]*os.Process
}

// New makes a group. What the processes log goes to logs, which is written by many
// goroutines.
func New(processes []Process, logs io.Writer) *Group {
	return &Group{processes: processes, logs: logs, log: slog.New(slog.NewJSONHandler(logs, nil)), running: map[string]*os.Process{}}
}

// Kill is kill -9 of a process by its name. False: it does not run just now.
func (g *Group) Kill(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	process := g.running[name]
	return process != nil && process.Kill() == nil
}

// Run keeps the processes running until ctx ends, and stops them then, the last one first.
// It returns earlier, with an error, if one can't be started or dies as soon as it is.
func (g *Group) Run(ctx context.Context) error {
	wanted := ctx
	ctx, giveUp := context.WithCancelCause(wanted)
	defer giveUp(nil)
	var stops []func()
	for _, p := range g.processes {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := g.keep(own, p); err != nil {
				giveUp(fmt.Errorf("%s: %w", p.Name, err))
			}
		}()
		stops = append(stops, func() { cancel(); <-ended })
	}
	<-ctx.Done()
	for _, stop := range slices.Backward(stops) {
		stop()
	}
	if wanted.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// keep runs a process again and again until ctx ends. It keeps its thread: the kernel
// signals a child when the thread that has made it ends, not the process.
func (g *Group) keep(ctx context.Context, p Process) error {
	runtime.LockOSThread()
	for died := 0; ; {
		started := time.Now()
		err := g.run(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		if died++; time.Since(started) > quick || killed(err) {
			died = 0
		}
		if died == mostQuick {
			return fmt.Errorf("it has ended %d times as soon as it was started: %w", died, err)
		}
		g.log.Warn("a process has ended, and is started again", "process", p.Name, "how", fmt.Sprint(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func killed(err error) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended) && !ended.Exited()
}

// run runs a process to its end, or that of ctx.
func (g *Group) run(ctx context.Context, p Process) error {
	cmd := exec.CommandContext(ctx, p.Program, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stderr = g.logs
	cmd.SysProcAttr = attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	if p.Listener != nil {
		file, err := p.Listener.File()
		if err != nil {
			return err
		}
		defer file.Close()
		cmd.ExtraFiles = []*os.File{file} // the first one is listenerFD
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.note(p.Name, cmd.Process)
	defer g.note(p.Name, nil)
	g.log.Info("started", "process", p.Name, "pid", cmd.Process.Pid)
	return cmd.Wait()
}

func (g *Group) note(name string, process *os.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[name] = process
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// child is a server that this program runs.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	said    *bytes.Buffer // not to be read before the end
	address string
	http    string // of its metrics; empty for echo
}

// startChild runs this program again as a contender and waits until it serves.
func startChild(ctx context.Context, role, profileDir string, environ ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self), said: new(bytes.Buffer)}
	c.cmd.Env = append(append(os.Environ(), roleVariable+"="+role), environ...)
	if profileDir != "" {
		name := strings.ReplaceAll(role, " ", "-") + ".pprof"
		c.cmd.Env = append(c.cmd.Env, profileVariable+"="+filepath.Join(profileDir, name))
	}
	c.cmd.Stderr = c.said
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("%s did not start: %s", role, c.said)
	}
	c.address, c.http, _ = strings.Cut(strings.TrimSpace(line), " ")
	return c, nil
}

// stop ends the child and waits for it.
func (c *child) stop() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	mathrand "math/rand/v2"

	"github.com/idemd/idemd/examples/payments/supervise"
)

// house keeps all parts running until ctx ends.
func house(ctx context.Context, idemd, listen string, out, logs io.Writer) error {
	idemd, err := exec.LookPath(idemd)
	if err != nil {
		return fmt.Errorf("--idemd: %w (build it: go build -o bin/idemd ./cmd/idemd, at the root of the repository)", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "payments-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var open [3]*net.TCPListener
	for i, at := range []string{listen, "127.0.0.1:0", "127.0.0.1:0"} {
		if open[i], err = listenOnLoopback(at); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		defer func() { _ = open[i].Close() }()
	}
	front, payments, bank := open[0], open[1], open[2]
	daemon, probes, err := freeAddresses()
	if err != nil {
		return err
	}
	// The front's secret is the same after a restart, so that addresses of status resources
	// stay good.
	secret := secretEnv + "=" + rand.Text()
	_, _ = fmt.Fprintf(out, "The front listens on http://%s. For the tour, in another terminal:\n\nexport FRONT=http://%s BANK=http://%s\n\n",
		front.Addr(), front.Addr(), bank.Addr())
	return supervise.Run(ctx, []supervise.Process{
		{Name: "idemd", Program: idemd, Args: []string{"serve", "--grpc-addr", daemon, "--http-addr", probes, "--data-dir", filepath.Join(dir, "idemd")}},
		{Name: "bank", Program: self, Args: []string{"bank"}, Listener: bank},
		{Name: "payments", Program: self, Listener: payments, Args: []string{
			"payments", "--idemd", daemon, "--bank", "http://" + bank.Addr().String(), "--accounts", filepath.Join(dir, "accounts.db"),
		}},
		{Name: "front", Program: self, Args: []string{"front", "--idemd", daemon, "--payments", payments.Addr().String()}, Env: []string{secret}, Listener: front},
	}, logs)
}

// listenOnLoopback refuses other addresses: nobody is authenticated here.
func listenOnLoopback(address string) (*net.TCPListener, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	if !at.IP.IsLoopback() {
		return nil, errors.New("only a loopback address will do, such as 127.0.0.1:8080")
	}
	return net.ListenTCP("tcp", at)
}

// freeAddresses picks two ports for idemd, which opens its own. They are below those that
// systems hand to outgoing connections: one of these could take it while idemd is down.
func freeAddresses() (first, second string, err error) {
	for range 100 {
		port := 10_000 + 2*mathrand.IntN(10_000)
		first, second = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))
		if err = errors.Join(free(first), free(second)); err == nil {
			return first, second, nil
		}
	}
	return "", "", err
}

func free(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

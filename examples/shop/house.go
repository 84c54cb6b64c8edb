package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	mathrand "math/rand/v2"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/examples/shop/chaos"
	"github.com/idemd/idemd/examples/shop/orders"
	"github.com/idemd/idemd/examples/shop/supervise"
	"github.com/idemd/idemd/examples/shop/warehouse"
	"github.com/idemd/idemd/internal/pgtest"
)

// house keeps all parts running until ctx ends, or the chaos does.
func house(ctx context.Context, s settings, out, logs io.Writer) (err error) {
	if s.idemd, err = exec.LookPath(s.idemd); err != nil {
		return fmt.Errorf("--idemd: %w (build it: go build -o bin/idemd ./cmd/idemd, at the root of the repository)", err)
	}
	dir, err := os.MkdirTemp("", "shop-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	world := chaos.World{}
	if s.postgres == "" {
		server, err := pgtest.New()
		if err != nil {
			return err
		}
		defer server.Remove()
		s.postgres, world.Postgres = server.DSN("postgres"), server
	}
	pool, err := pgxpool.New(ctx, s.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := errors.Join(orders.Migrate(ctx, pool), warehouse.Migrate(ctx, pool)); err != nil {
		return fmt.Errorf("the tables: %w", err)
	}
	front, err := listenOnLoopback(s.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", s.listen, err)
	}
	defer func() { _ = front.Close() }()
	mails, err := listenOnLoopback("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = mails.Close() }()
	places, err := freePorts()
	if err != nil {
		return err
	}
	processes, err := processesOf(s, dir, front, mails, places)
	if err != nil {
		return err
	}
	group := supervise.New(processes, logs)
	world.Pool, world.Kill = pool, group.Kill
	world.Orders, world.Mails, world.Broker = "http://"+front.Addr().String(), "http://"+mails.Addr().String(), places.brokerURL()
	if s.chaos > 0 {
		return wreak(ctx, s, group, world, out)
	}
	_, _ = fmt.Fprintf(out, welcome, world.Orders, world.Mails)
	return group.Run(ctx)
}

const welcome = `Orders are taken on %[1]s. In another terminal, as often as you like:

curl -si -H 'Idempotency-Key: order-1' --json '{"reference": "1", "article": "tea", "quantity": 2, "mail_to": "alice@example.org"}' %[1]s/orders
curl -s %[2]s/mails

`

// wreak runs the chaos beside the processes, and stops them after it.
func wreak(ctx context.Context, s settings, group *supervise.Group, world chaos.World, out io.Writer) error {
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop(group.Run(ctx)) // it ends before it is told to where a part can't run
	}()
	err := chaos.Run(ctx, chaos.Config{Orders: s.chaos, Clients: s.clients, Seed: s.seed, Broken: s.broken}, world, out)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	stop(nil)
	<-ended
	return err
}

// processesOf are the parts, first what others need.
func processesOf(s settings, dir string, front, mails *net.TCPListener, at ports) ([]supervise.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	broker, database := "--broker="+at.brokerURL(), postgresEnv+"="+s.postgres
	own := func(name string, listener *net.TCPListener, args ...string) supervise.Process {
		return supervise.Process{Name: name, Program: self, Args: append([]string{name}, args...), Env: []string{database}, Listener: listener}
	}
	return []supervise.Process{
		{Name: "idemd", Program: s.idemd, Args: []string{
			"serve", "--grpc-addr", at.loopback(0), "--http-addr", at.loopback(1), "--data-dir", filepath.Join(dir, "idemd"),
		}},
		own("mailserver", mails),
		own("broker", nil, "--port="+strconv.Itoa(at.first+2), "--dir="+filepath.Join(dir, "broker")),
		own("orders", front, "--idemd="+at.loopback(0), broker, "--broken="+s.broken),
		own("relay", nil, broker),
		own("warehouse", nil, broker, "--broken="+s.broken),
		own("mailer", nil, "--idemd="+at.loopback(0), broker, "--mailserver=http://"+mails.Addr().String(), "--broken="+s.broken),
	}, nil
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

// ports are three in a row, for what opens its own: idemd (two) and the broker.
type ports struct{ first int }

func (p ports) loopback(i int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.first+i))
}

func (p ports) brokerURL() string { return "nats://" + p.loopback(2) }

// freePorts picks them below those that systems hand to outgoing connections: one of these
// could take a port while its process is down.
func freePorts() (p ports, err error) {
	for range 100 {
		p.first = 10_000 + 3*mathrand.IntN(7_000)
		if err = errors.Join(free(p.loopback(0)), free(p.loopback(1)), free(p.loopback(2))); err == nil {
			return p, nil
		}
	}
	return p, err
}

func free(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}

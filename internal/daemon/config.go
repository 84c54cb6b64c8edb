package daemon

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/grpcserver"
)

// Config is what a daemon is told. Addresses are host:port; port 0 picks a free one.
type Config struct {
	GRPCAddr string
	HTTPAddr string
	// DataDir holds the embedded store. Postgres, a connection string, chooses
	// PostgreSQL instead.
	DataDir  string
	Postgres string
	// PostgresConns bounds the connections that calls use.
	PostgresConns int
	// Migrate brings PostgreSQL's schema up to date at start; without it a daemon
	// refuses a schema that is not.
	Migrate bool
	// ReadOnly opens an embedded store that exists, and changes nothing in it.
	ReadOnly bool
	// Insecure allows addresses beyond loopback: there is no authentication yet.
	Insecure bool
	Policies engine.Policies
	Logger   *slog.Logger
	// DrainTimeout bounds the shutdown. Zero = 8 s.
	DrainTimeout time.Duration
	// Started is called once the daemon answers, with the addresses it listens on.
	Started func(grpcAddr, httpAddr string)
}

// MaxMessageBytes bounds a gRPC message, both ways.
const MaxMessageBytes = grpcserver.MaxMessageBytes

// defaultDrainTimeout bounds a shutdown.
const defaultDrainTimeout = 8 * time.Second

// Validate tells what is wrong with the configuration.
func (c Config) Validate() error {
	for _, listen := range []struct{ flag, addr string }{{"grpc-addr", c.GRPCAddr}, {"http-addr", c.HTTPAddr}} {
		loopback, err := isLoopback(listen.addr)
		if err != nil {
			return fmt.Errorf("--%s %q: %w", listen.flag, listen.addr, err)
		}
		if !loopback && !c.Insecure {
			return fmt.Errorf("--%s %q is reachable from other machines, and idemd has no authentication yet: listen on 127.0.0.1, or pass --insecure if the network in front of it is trusted", listen.flag, listen.addr)
		}
	}
	if c.PostgresConns < 0 || c.PostgresConns > maxPostgresConns {
		return fmt.Errorf("--postgres-conns %d: want 1 to %d", c.PostgresConns, maxPostgresConns)
	}
	return c.Policies.Validate()
}

// maxPostgresConns is more than one PostgreSQL serves well.
const maxPostgresConns = 1000

// isLoopback tells whether an address can be reached from this machine only.
func isLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, fmt.Errorf("want host:port: %w", err)
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}

package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/idemd/idemd/internal/daemon"
)

// storeFlags choose a store.
type storeFlags struct {
	DataDir       string `default:"./idemd-data" help:"Directory of the embedded store." placeholder:"DIR"`
	Postgres      string `help:"Connection string of a PostgreSQL 15 or newer; chooses it instead of the embedded store." placeholder:"DSN"`
	PostgresConns int    `default:"8" help:"Connections to PostgreSQL for calls; three more serve the sweeper, statistics and probes."`
}

type serveCmd struct {
	storeFlags
	GRPCAddr string `name:"grpc-addr" default:"127.0.0.1:7070" help:"Where to answer calls." placeholder:"HOST:PORT"`
	HTTPAddr string `name:"http-addr" default:"127.0.0.1:7071" help:"Where to serve /metrics, /livez and /readyz." placeholder:"HOST:PORT"`
	Migrate  bool   `default:"true" negatable:"" help:"Migrate PostgreSQL's schema at start; with --no-migrate or --migrate=false an outdated schema is refused."`
	Insecure bool   `help:"Allow addresses beyond loopback. There is no authentication: whoever reaches the daemon can do everything."`
	LogLevel string `default:"info" enum:"debug,info,warn,error" help:"What to log: debug, info, warn or error."`
}

// Run runs the daemon until SIGINT or SIGTERM drains it; a second signal ends it at
// once.
func (c *serveCmd) Run(std streams) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usageError{err}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(exitUnexpected)
	}()
	return daemon.Run(ctx, daemon.Config{
		GRPCAddr: c.GRPCAddr, HTTPAddr: c.HTTPAddr, DataDir: c.DataDir, Postgres: c.Postgres,
		PostgresConns: c.PostgresConns, Migrate: c.Migrate, Insecure: c.Insecure,
		Logger: slog.New(slog.NewJSONHandler(std.err, &slog.HandlerOptions{Level: level})),
	})
}

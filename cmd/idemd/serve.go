package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/idemd/idemd/internal/daemon"
)

// storeFlags choose a store.
type storeFlags struct {
	DataDir       string `help:"Directory of the embedded store. Default: ./idemd-data." placeholder:"DIR"`
	Postgres      string `help:"Connection string of a PostgreSQL 15 or newer; chooses it instead of the embedded store." placeholder:"DSN"`
	PostgresConns int    `default:"8" help:"Connections to PostgreSQL for calls; three more serve the sweeper, statistics and probes."`
}

// defaultDataDir is where the embedded store lies if nobody says otherwise.
const defaultDataDir = "./idemd-data"

// AfterApply refuses what could open another store than was meant: a daemon with an
// empty memory grants everything anew.
func (f *storeFlags) AfterApply() error {
	dsn, set := os.LookupEnv("IDEMD_POSTGRES")
	switch {
	case f.Postgres != "" && f.DataDir != "":
		return errors.New("--data-dir and --postgres (or IDEMD_DATA_DIR and IDEMD_POSTGRES) name two stores: give one")
	case f.Postgres == "" && set && strings.TrimSpace(dsn) == "":
		return errors.New("IDEMD_POSTGRES is set but empty: give it a connection string, or unset it for the embedded store")
	case f.Postgres != "":
		return nil
	case f.DataDir == "":
		f.DataDir = defaultDataDir
	}
	return nil
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
	config := daemon.Config{
		GRPCAddr: c.GRPCAddr, HTTPAddr: c.HTTPAddr, DataDir: c.DataDir, Postgres: c.Postgres,
		PostgresConns: c.PostgresConns, Migrate: c.Migrate, Insecure: c.Insecure,
		Logger: slog.New(slog.NewJSONHandler(std.err, &slog.HandlerOptions{Level: level})),
	}
	if err := config.Validate(); err != nil {
		return usageError{err}
	}
	return daemon.Run(ctx, config)
}

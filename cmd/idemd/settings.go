package main

import (
	"errors"
	"os"
	"strings"

	"github.com/idemd/idemd/internal/config"
)

// storeFlags choose a store, over what the configuration's file says.
type storeFlags struct {
	Config        string `help:"The configuration's file." placeholder:"FILE"`
	DataDir       string `help:"Directory of the embedded store. Default: ./idemd-data." placeholder:"DIR"`
	Postgres      string `help:"Connection string of a PostgreSQL 15 or newer; chooses it instead of the embedded store." placeholder:"DSN"`
	PostgresConns *int   `help:"Connections to PostgreSQL for calls; three more serve the sweeper, statistics and probes. Default: 8." placeholder:"N"`
}

// AfterApply refuses what could open another store than was meant: a daemon with an
// empty memory grants everything anew.
func (f *storeFlags) AfterApply() error {
	dsn, set := os.LookupEnv("IDEMD_POSTGRES")
	switch {
	case f.Postgres != "" && f.DataDir != "":
		return errors.New("--data-dir and --postgres (or IDEMD_DATA_DIR and IDEMD_POSTGRES) name two stores: give one")
	case f.Postgres == "" && set && strings.TrimSpace(dsn) == "":
		return errors.New("IDEMD_POSTGRES is set but empty: give it a connection string, or unset it for the embedded store")
	}
	return nil
}

// override puts the flags over what the file says. A file and a flag that name stores of
// different kinds stay both, and are refused.
func (f *storeFlags) override(c *config.Config) {
	if f.DataDir != "" {
		c.Store.DataDir = f.DataDir
	}
	if f.Postgres != "" {
		c.Store.Postgres, c.Store.PostgresFile = f.Postgres, ""
	}
	set(&c.Store.Connections, f.PostgresConns)
}

func (f *storeFlags) source() config.Source {
	return config.Source{File: f.Config, Override: f.override}
}

// settingsFlags are what a daemon can be told by flags and environment.
type settingsFlags struct {
	storeFlags
	GRPCAddr string `name:"grpc-addr" help:"Where to answer calls. Default: 127.0.0.1:7070." placeholder:"HOST:PORT"`
	HTTPAddr string `name:"http-addr" help:"Where to serve /metrics, /livez and /readyz. Default: 127.0.0.1:7071." placeholder:"HOST:PORT"`
	Migrate  *bool  `negatable:"" help:"Migrate PostgreSQL's schema at start, which is the default; with --no-migrate or --migrate=false an outdated schema is refused."`
	Insecure *bool  `help:"Allow addresses beyond loopback without authentication, or without TLS: whoever reaches the daemon can do everything."`
	LogLevel string `enum:",debug,info,warn,error" default:"" help:"What to log: debug, info, warn or error. Default: info."`
}

func (f *settingsFlags) source() config.Source {
	return config.Source{File: f.Config, Override: f.override}
}

func (f *settingsFlags) override(c *config.Config) {
	f.storeFlags.override(c)
	text := func(to *string, flag string) {
		if flag != "" {
			*to = flag
		}
	}
	text(&c.Listen.GRPC, f.GRPCAddr)
	text(&c.Listen.HTTP, f.HTTPAddr)
	text(&c.Listen.LogLevel, f.LogLevel)
	set(&c.Listen.Insecure, f.Insecure)
	set(&c.Store.Migrate, f.Migrate)
}

// set overrides a value with a flag that was given.
func set[T any](to, flag *T) {
	if flag != nil {
		*to = *flag
	}
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/daemon"
)

type migrateCmd struct {
	Config   string `xor:"store" required:"" help:"The configuration's file." placeholder:"FILE"`
	Postgres string `xor:"store" required:"" help:"Connection string of a PostgreSQL 15 or newer." placeholder:"DSN"`
}

// Run brings the schema up to date.
func (c *migrateCmd) Run(std streams) error {
	store := config.Store{Postgres: c.Postgres}
	if c.Postgres == "" {
		settings, _, err := config.Source{File: c.Config}.Load()
		if err != nil {
			return unusable(err)
		}
		store = settings.Store
	}
	if err := daemon.Migrate(context.Background(), store); err != nil {
		return err
	}
	_, err := fmt.Fprintln(std.out, "the schema is up to date")
	return err
}

type checkCmd struct {
	storeFlags
}

// Run reads the whole store. The embedded store must not be open elsewhere.
func (c *checkCmd) Run(std streams) error {
	ctx := context.Background()
	settings, _, err := c.source().Load()
	if err != nil {
		return unusable(err)
	}
	logger := slog.New(slog.NewJSONHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	opened, err := daemon.OpenStore(ctx, settings.Store, true, logger)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	report, err := opened.Check(ctx)
	if err != nil {
		return err
	}
	for _, fault := range report.Faults {
		if _, err := fmt.Fprintf(std.out, "%s/%s/%s: %s\n", fault.Address.Tenant, fault.Address.Namespace, fault.Address.Key, fault.Problem); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(std.out, "%d records read, %d faults\n", report.Records, report.FaultCount); err != nil {
		return err
	}
	if report.FaultCount > 0 {
		return answered(exitUnexpected)
	}
	return nil
}

type healthCmd struct {
	clientFlags
}

// Run asks a daemon's standard health service.
func (c *healthCmd) Run(std streams) error {
	return c.dialled(func(ctx context.Context, conn *grpc.ClientConn) error {
		response, err := healthgrpc.NewHealthClient(conn).Check(ctx, &healthgrpc.HealthCheckRequest{})
		if err != nil {
			return err
		}
		if err := show(std, c.Output, response, nil); err != nil {
			return err
		}
		if response.GetStatus() != healthgrpc.HealthCheckResponse_SERVING {
			return answered(exitUnavailable)
		}
		return nil
	})
}

type versionCmd struct{}

// Run shows what this program was built from.
func (versionCmd) Run(std streams) error {
	version, revision := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = " " + setting.Value
			}
		}
		_, err := fmt.Fprintf(std.out, "idemd %s%s (%s)\n", version, revision, info.GoVersion)
		return err
	}
	_, err := fmt.Fprintln(std.out, "idemd", version)
	return err
}

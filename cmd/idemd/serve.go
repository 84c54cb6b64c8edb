package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/idemd/idemd/internal/daemon"
)

type serveCmd struct {
	settingsFlags
}

// Run runs the daemon until SIGINT or SIGTERM drains it; a second signal ends it at
// once. SIGHUP has it read its configuration again.
func (c *serveCmd) Run(std streams) error {
	settings, _, err := c.source().Load()
	if err != nil {
		return unusable(err)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(settings.Listen.LogLevel)); err != nil {
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
		Source: c.source(), Reload: hangUps(ctx),
		Logger: slog.New(slog.NewJSONHandler(std.err, &slog.HandlerOptions{Level: level})),
	})
}

// hangUps are orders to read the configuration again. Many at once are one.
func hangUps(ctx context.Context) <-chan struct{} {
	signals, orders := make(chan os.Signal, 1), make(chan struct{}, 1)
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				select {
				case orders <- struct{}{}:
				default:
				}
			}
		}
	}()
	return orders
}

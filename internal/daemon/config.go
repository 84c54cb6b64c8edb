package daemon

import (
	"log/slog"
	"time"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/grpcserver"
)

// Config is what a daemon is started with.
type Config struct {
	// Source is where the configuration comes from, and where it is looked for again.
	Source config.Source
	// Reload has the configuration and all other files read again at once; nil = they
	// are only looked at every few seconds.
	Reload <-chan struct{}
	Logger *slog.Logger
	// DrainTimeout bounds the shutdown. Zero = 8 s.
	DrainTimeout time.Duration
	// Started is called once the daemon answers, with the addresses it listens on.
	Started func(grpcAddr, httpAddr string)
}

// MaxMessageBytes bounds a gRPC message, both ways.
const MaxMessageBytes = grpcserver.MaxMessageBytes

// defaultDrainTimeout bounds a shutdown.
const defaultDrainTimeout = 8 * time.Second

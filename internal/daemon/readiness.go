package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/idemd/idemd/internal/grpcserver"
	"github.com/idemd/idemd/internal/store"
)

// How often the store is asked whether it can answer, and how long it may take.
const (
	pingEvery   = time.Second
	pingTimeout = time.Second
)

// readiness ties gRPC's health and /readyz to the store.
type readiness struct {
	store  store.Store
	health *health.Server
	logger *slog.Logger

	answers  atomic.Bool // the store answered the last ping
	draining atomic.Bool
	// failed is closed when the store has failed for good.
	failed chan struct{}
}

func newReadiness(s store.Store, logger *slog.Logger) *readiness {
	r := &readiness{store: s, health: health.NewServer(), logger: logger, failed: make(chan struct{})}
	r.set(true)
	return r
}

// watch pings until ctx ends or the store has failed for good.
func (r *readiness) watch(ctx context.Context) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if errors.Is(r.ping(ctx), store.ErrFailed) {
				close(r.failed)
				return
			}
		}
	}
}

func (r *readiness) ping(ctx context.Context) error {
	pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	err := r.store.Ping(pingCtx)
	if ctx.Err() != nil || (err == nil) == r.answers.Load() {
		return err
	}
	if err != nil {
		r.logger.Error("the store can't answer: calls are refused with STORE_UNAVAILABLE until it can", "error", err)
	} else {
		r.logger.Info("the store answers again")
	}
	r.set(err == nil)
	return err
}

func (r *readiness) set(answers bool) {
	r.answers.Store(answers)
	status := healthgrpc.HealthCheckResponse_NOT_SERVING
	if answers {
		status = healthgrpc.HealthCheckResponse_SERVING
	}
	for _, service := range append(grpcserver.ServiceNames(), "") {
		r.health.SetServingStatus(service, status)
	}
}

// drain says that no more calls are taken, for good.
func (r *readiness) drain() {
	r.draining.Store(true)
	r.health.Shutdown()
}

// ready tells whether calls can be taken.
func (r *readiness) ready() bool { return r.answers.Load() && !r.draining.Load() }

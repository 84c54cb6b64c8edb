package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/grpcserver"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/ttl"
)

// daemon is a running idemd.
type daemon struct {
	config    Config
	store     store.Store
	engine    *engine.Engine
	readiness *readiness
	grpc      *grpc.Server
	http      *http.Server
	grpcL     net.Listener
	httpL     net.Listener
}

// Run runs a daemon until ctx ends, then drains it: new calls are refused, those
// under way are answered, and what is not done within the bound is cut off.
func Run(ctx context.Context, c Config) error {
	if c.DrainTimeout == 0 {
		c.DrainTimeout = defaultDrainTimeout
	}
	if err := c.Validate(); err != nil {
		return err
	}
	d := &daemon{config: c}
	if err := d.listen(); err != nil {
		return err
	}
	defer d.closeListeners()
	opened, err := OpenStore(ctx, c)
	if err != nil {
		return err
	}
	d.store = opened
	return errors.Join(d.serve(ctx), d.store.Close())
}

// listen takes the ports first: a daemon that can't have them touches no data.
func (d *daemon) listen() (err error) {
	if d.grpcL, err = net.Listen("tcp", d.config.GRPCAddr); err != nil {
		return fmt.Errorf("--grpc-addr: %w", err)
	}
	if d.httpL, err = net.Listen("tcp", d.config.HTTPAddr); err != nil {
		d.closeListeners()
		return fmt.Errorf("--http-addr: %w", err)
	}
	return nil
}

func (d *daemon) closeListeners() {
	for _, l := range []net.Listener{d.grpcL, d.httpL} {
		if l != nil {
			_ = l.Close()
		}
	}
}

func (d *daemon) serve(ctx context.Context) error {
	m := newMetrics(d.config.Insecure)
	m.registerStats(newStatsCache(d.store))
	var err error
	d.engine, err = engine.New(engine.Options{
		Store: d.store, Policies: d.config.Policies, Writers: d.config.writers(), Hooks: m.hooks(),
	})
	if err != nil {
		return err
	}
	defer d.engine.Close()
	d.readiness = newReadiness(d.store, d.config.Logger)
	d.grpc = grpcserver.New(grpcserver.Options{
		Engine: d.engine, Health: d.readiness.health, Metrics: m.grpc, Logger: d.config.Logger,
	})
	d.http = newHTTP(m.registry, d.readiness.ready)

	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	sweeper := &ttl.Sweeper{
		Store: d.store, Logger: d.config.Logger, Swept: m.sweepHook, Failed: func(error) { m.sweepErrors.Inc() },
	}
	running.Go(func() { sweeper.Run(background) })
	running.Go(func() { d.readiness.watch(background) })

	failed := make(chan error, 2)
	running.Go(func() { failed <- d.grpc.Serve(d.grpcL) })
	running.Go(func() { failed <- d.http.Serve(d.httpL) })
	d.announce()

	select {
	case <-ctx.Done():
	case err = <-failed:
	case <-d.readiness.failed:
		// Only opening the store again can help: whoever supervises the daemon does it.
		err = store.ErrFailed
	}
	d.drain()
	if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

func (d *daemon) announce() {
	log := d.config.Logger
	if d.config.Insecure {
		log.Warn("listening without authentication as told by --insecure: whoever reaches this daemon can read and settle every tenant's reservations")
	}
	log.Info("idemd answers", "grpc", d.grpcL.Addr().String(), "http", d.httpL.Addr().String(), "store", d.config.storeName())
	if d.config.Started != nil {
		d.config.Started(d.grpcL.Addr().String(), d.httpL.Addr().String())
	}
}

// drain ends the daemon within the bound: probes fail first, so that nobody is sent
// here any more, then calls end, then what hangs is cut off.
func (d *daemon) drain() {
	d.config.Logger.Info("draining", "within", d.config.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout)
	defer cancel()
	d.readiness.drain()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.grpc.GracefulStop()
	}()
	if err := d.engine.Drain(ctx); err != nil {
		d.config.Logger.Warn("some calls were not answered within the bound", "error", err)
	}
	select {
	case <-stopped:
	case <-ctx.Done():
	}
	d.grpc.Stop()
	_ = d.http.Close()
}

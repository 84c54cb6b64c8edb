package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"

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
	metrics   *metrics
	readiness *readiness
	grpc      *grpc.Server
	http      *http.Server
	grpcL     net.Listener
	httpL     net.Listener

	// background is what runs beside the calls, until stop.
	background sync.WaitGroup
	stop       context.CancelFunc
	failed     chan error // a server that ended
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
	calmGC()
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
	if err := d.build(); err != nil {
		return errors.Join(err, d.store.Close())
	}
	d.start(ctx)
	return errors.Join(d.wait(ctx), d.shutDown())
}

// calmGC lets the heap grow to five times what is live before it is collected, unless
// GOGC says otherwise: what is live is a few tens of MiB, and at Go's default a sixth
// of a busy daemon's CPU time went into collecting. Where much is live, as while hundreds
// of results of 1 MiB are stored at once, that would be gigabytes: near 1 GiB it is
// collected more often, unless GOMEMLIMIT says otherwise.
func calmGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(1 << 30)
	}
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

// build makes everything that runs on the store.
func (d *daemon) build() (err error) {
	d.metrics = newMetrics(d.config.Insecure)
	d.metrics.registerStats(newStatsCache(d.store))
	d.engine, err = engine.New(engine.Options{
		Store: d.store, Policies: d.config.Policies, Writers: writers, Hooks: d.metrics.hooks(),
	})
	if err != nil {
		return err
	}
	d.metrics.registerWaiting(d.engine.Waiting)
	d.readiness = newReadiness(d.store, d.config.Logger)
	d.grpc = grpcserver.New(grpcserver.Options{
		Engine: d.engine, Health: d.readiness.health, Metrics: d.metrics.grpc, Logger: d.config.Logger,
	})
	d.http = newHTTP(d.metrics.registry, d.readiness.ready)
	return nil
}

// start lets everything run until stop.
func (d *daemon) start(ctx context.Context) {
	ctx, d.stop = context.WithCancel(ctx)
	sweeper := &ttl.Sweeper{
		Store: d.store, Logger: d.config.Logger, Swept: d.metrics.sweepHook,
		Failed: func(error) { d.metrics.sweepErrors.Inc() },
	}
	d.failed = make(chan error, 2)
	d.background.Go(func() { sweeper.Run(ctx) })
	d.background.Go(func() { d.readiness.watch(ctx) })
	d.background.Go(func() { d.failed <- d.grpc.Serve(d.grpcL) })
	d.background.Go(func() { d.failed <- d.http.Serve(d.httpL) })
	d.announce()
}

// wait returns when the daemon must end: nil if it was told to.
func (d *daemon) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.failed:
		return err
	case <-d.readiness.failed:
		// Only opening the store again can help: whoever supervises the daemon does it.
		return store.ErrFailed
	}
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

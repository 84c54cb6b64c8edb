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
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/grpcserver"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/ttl"
)

// daemon is a running idemd.
type daemon struct {
	config    Config
	settings  *settings
	store     store.Store
	engine    *engine.Engine
	metrics   *metrics
	traces    *sdktrace.TracerProvider // nil = nothing is traced
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
	settings, err := newSettings(c.Source)
	if err != nil {
		return err
	}
	calmGC()
	d := &daemon{config: c, settings: settings}
	if err := d.listen(); err != nil {
		return err
	}
	defer d.closeListeners()
	opened, err := OpenStore(ctx, settings.started.Store, false, c.Logger)
	if err != nil {
		return err
	}
	d.store = opened
	if t := settings.started.Tracing; t != nil {
		if d.traces, err = newTraces(ctx, *t, c.Logger); err != nil {
			return errors.Join(err, d.store.Close())
		}
		defer flush(d.traces)
	}
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
	at := d.settings.started.Listen
	if d.grpcL, err = net.Listen("tcp", at.GRPC); err != nil {
		return fmt.Errorf("listen.grpc (--grpc-addr): %w", err)
	}
	if d.httpL, err = net.Listen("tcp", at.HTTP); err != nil {
		d.closeListeners()
		return fmt.Errorf("listen.http (--http-addr): %w", err)
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
	started := d.settings.started
	d.metrics = newMetrics(started.Open())
	d.engine, err = engine.New(engine.Options{
		Store: d.store, Policies: started.Policies(), Writers: writers, Hooks: d.metrics.hooks(),
	})
	if err != nil {
		return err
	}
	d.metrics.scopes.configure(started.Policies())
	d.settings.apply = func(c *config.Config) error {
		d.metrics.scopes.configure(c.Policies())
		return d.engine.SetPolicies(c.Policies())
	}
	d.settings.warn = d.config.Logger.Warn
	d.metrics.registerStats(d.engine.Stats)
	d.metrics.registerLoad(d.engine.Waiting, d.engine.Queued)
	d.readiness = newReadiness(d.store, d.config.Logger)
	d.metrics.registerStore(d.store, d.readiness.answers.Load)
	d.serve()
	return nil
}

// serve makes the servers.
func (d *daemon) serve() {
	started := d.settings.started
	calls := grpcserver.Options{
		Engine: d.engine, Health: d.readiness.health, Metrics: d.metrics.grpc, Logger: d.config.Logger,
		Refused: d.metrics.refused, LogKey: d.settings.logKey,
	}
	pages := httpOptions{registry: d.metrics.registry, ready: d.readiness.ready, pprof: started.Listen.PProf}
	if d.settings.asks() {
		calls.Identify, pages.identify = d.settings.identify, d.settings.identify
	}
	if d.traces != nil {
		calls.Traces = d.traces
	}
	if certs := d.settings.certs; certs != nil {
		calls.TLS = certs.server("h2")
		if started.TLS.HTTP {
			pages.tls = certs.server("h2", "http/1.1")
		}
	}
	d.grpc, d.http = grpcserver.New(calls), newHTTP(pages)
}

// start lets everything run until stop.
func (d *daemon) start(ctx context.Context) {
	ctx, d.stop = context.WithCancel(ctx)
	sweeper := &ttl.Sweeper{
		Store: d.store, Logger: d.config.Logger, Swept: d.metrics.sweepHook,
		Failed: func(error) { d.metrics.sweepErrors.Inc() },
	}
	d.failed = make(chan error, 2)
	d.shareQuotas(ctx) // before anybody takes from them
	d.background.Go(func() { sweeper.Run(ctx) })
	d.background.Go(func() { d.readiness.watch(ctx) })
	d.background.Go(func() { d.watchFiles(ctx) })
	d.background.Go(func() { d.keepQuotas(ctx) })
	d.background.Go(func() { d.measureStored(ctx) })
	d.background.Go(func() { d.failed <- d.grpc.Serve(d.grpcL) })
	d.background.Go(func() { d.failed <- d.serveHTTP() })
	d.announce()
}

func (d *daemon) serveHTTP() error {
	if d.http.TLSConfig != nil {
		return d.http.ServeTLS(d.httpL, "", "")
	}
	return d.http.Serve(d.httpL)
}

// watchFiles reads the configuration and the files that it names again when they change.
func (d *daemon) watchFiles(ctx context.Context) {
	ticker := time.NewTicker(reloadEvery)
	defer ticker.Stop()
	d.metrics.configured(d.settings.hash())
	r := &reloader{
		files: []*watched{
			{what: configWhat, reload: d.settings.reload},
			{what: certificatesWhat, reload: func(bool) (bool, error) { return d.settings.reloadCertificates() }},
			{what: keysWhat, reload: func(bool) (bool, error) { return d.settings.reloadKeys() }},
		},
		logger: d.config.Logger, failed: d.metrics.reloadFailed,
		renewed: func(what string) {
			if what == configWhat {
				d.metrics.configured(d.settings.hash())
			}
		},
	}
	r.run(ctx, ticker.C, d.config.Reload)
}

// What is read again is called so in logs and metrics.
const (
	configWhat       = "configuration"
	certificatesWhat = "certificates"
	keysWhat         = "keys of JWT issuers"
)

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
	log, started := d.config.Logger, d.settings.started
	if started.Open() {
		log.Warn("listening without authentication as told by --insecure: whoever reaches this daemon can read and settle every tenant's reservations")
	} else if d.settings.certs == nil && !started.Local() {
		log.Warn("listening without TLS as told: tokens can be read on the way to this daemon")
	}
	log.Info("idemd answers", "grpc", d.grpcL.Addr().String(), "http", d.httpL.Addr().String(), "store", storeName(started.Store),
		"tls", d.settings.certs != nil, "authentication", d.settings.asks(), "config", d.config.Source.File)
	if d.config.Started != nil {
		d.config.Started(d.grpcL.Addr().String(), d.httpL.Addr().String())
	}
}

package daemon

import (
	"context"
	"time"
)

// What each step of a shutdown may take of its bound.
const (
	// closing is kept for the store.
	closing = 2 * time.Second
	// lastWords is for answers that are on their way when all calls are answered, and
	// for streams that end only with their client, as those that watch health do.
	lastWords = 500 * time.Millisecond
)

// shutDown ends the daemon within the bound: probes fail first, so that nobody is sent
// here any more, then calls end, then what hangs is cut off. What is cut off was not
// answered: nothing that was is at risk.
func (d *daemon) shutDown() error {
	log := d.config.Logger
	log.Info("draining", "within", d.config.DrainTimeout.String())
	over := time.After(d.config.DrainTimeout)
	d.readiness.drain()
	d.stop()
	d.endCalls(d.config.DrainTimeout - closing - lastWords)
	closed := make(chan error, 1)
	go func() {
		d.engine.Close()
		d.background.Wait()
		closed <- d.store.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-over:
		log.Warn("the store hangs and was not closed; nothing that was answered is at risk")
		return nil
	}
}

func (d *daemon) endCalls(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.grpc.GracefulStop()
	}()
	if err := d.engine.Drain(ctx); err != nil {
		d.config.Logger.Warn("some calls were not answered within the bound")
	}
	select {
	case <-stopped:
	case <-time.After(lastWords):
	}
	d.grpc.Stop()
	_ = d.http.Close()
}

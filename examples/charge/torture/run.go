package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/child"
)

// Config says what to torture.
type Config struct {
	// Idemd is the path of the program. Postgres, a DSN, chooses that store.
	Idemd, Postgres string
	Operations      int
	// Workers is how many operations there are at once.
	Workers int
	// Kills is how often the daemon is killed; 0 = once in 2,000 operations, at least 5
	// times.
	Kills int
	Seed  uint64
	// Broken is one of the constants, or empty.
	Broken string
	// Show bounds the list of unresolved operations.
	Show int
	Out  io.Writer
}

func (c *Config) validate() error {
	switch {
	case c.Operations < 1, c.Workers < 1, c.Kills < 0:
		return errors.New("operations and workers must be positive, kills not negative")
	case c.Broken != "" && !slices.Contains(Parts(), c.Broken):
		return fmt.Errorf("%q is nothing that can be broken", c.Broken)
	case c.Broken == BrokenAmnesia && c.Postgres != "":
		return errors.New("only an embedded store can be given amnesia")
	}
	if c.Kills == 0 {
		c.Kills = max(5, c.Operations/2000)
	}
	return nil
}

// Run tortures, and fails if a rule is broken.
func Run(ctx context.Context, c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "charge-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, name := filepath.Join(dir, "data"), "embedded"
	flags := []string{"--data-dir", data}
	if c.Postgres != "" {
		flags, name = []string{"--postgres", c.Postgres}, "postgres"
	}
	_, _ = fmt.Fprintf(c.Out, "torture: %d operations, %d at once, %d kills, store %s, seed %d\n", c.Operations, c.Workers, c.Kills, name, c.Seed)
	daemon, err := child.Start(c.Idemd, flags...)
	if err != nil {
		return err
	}
	defer daemon.Kill()
	w, err := newWorld(c, daemon)
	if err != nil {
		return err
	}
	defer w.close()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go w.watch(watching)
	forget := func() error { return nil }
	if c.Broken == BrokenAmnesia {
		forget = func() error { return os.RemoveAll(data) }
	}
	if err := w.work(ctx, forget); err != nil {
		return err
	}
	worked := w.now()
	if err := w.settle(ctx); err != nil {
		return err
	}
	return w.report(worked)
}

// work has every operation tried by its clients, and the daemon killed meanwhile.
func (w *world) work(ctx context.Context, forget func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan struct{}, w.config.Kills)
	var killer sync.WaitGroup
	killer.Go(func() {
		if err := w.kill(ctx, due, forget); err != nil {
			cancel(err)
		}
	})
	var done atomic.Int64
	w.each(func(o *operation) {
		if ctx.Err() != nil {
			return
		}
		w.charge(ctx, o)
		n, kills := done.Add(1), int64(w.config.Kills)
		// The kills are spread over the operations: the i-th of k after i/(k+1) of them.
		before, after := (n-1)*(kills+1)/int64(w.config.Operations), n*(kills+1)/int64(w.config.Operations)
		for i := before; i < after && i < kills; i++ {
			due <- struct{}{}
		}
	})
	close(due)
	killer.Wait()
	return context.Cause(ctx)
}

// each runs a function for all operations, as many at once as there are workers.
func (w *world) each(do func(*operation)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(w.config.Workers, len(w.operations)) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(w.operations)); i = next.Add(1) - 1 {
				do(w.operations[i])
			}
		})
	}
	workers.Wait()
}

// charge has all clients of an operation try at once.
func (w *world) charge(ctx context.Context, o *operation) {
	o.began, o.first = w.now(), time.Now()
	o.plan = planFor(w.config.Seed, o.index, len(w.processes))
	var clients sync.WaitGroup
	for i, c := range o.plan.clients {
		clients.Go(func() {
			for try, t := range c.tries {
				select {
				case <-time.After(t.pause):
				case <-ctx.Done():
					return
				}
				who, key := fmt.Sprintf("client %d.%d", i+1, try+1), o.order
				if w.config.Broken == BrokenNewKey {
					key = fmt.Sprintf("%s-%d-%d", key, i, try)
				}
				heard := w.try(ctx, o, who, key, w.processes[c.process], t)
				if heard == heardDone || heard == heardReplay || heard == heardDeclined || heard == heardExpired {
					break
				}
			}
		})
	}
	clients.Wait()
}

// kill kills the daemon with -9 and starts it again whenever it is due.
func (w *world) kill(ctx context.Context, due <-chan struct{}, forget func() error) error {
	for _, down := range planOutages(w.config.Seed, w.config.Kills) {
		if _, is := <-due; !is || ctx.Err() != nil {
			return nil
		}
		w.countSwept(ctx)
		k := outage{start: w.now()}
		w.daemon.Kill()
		if err := forget(); err != nil {
			return err
		}
		select {
		case <-time.After(down):
		case <-ctx.Done():
		}
		if err := w.daemon.Restart(); err != nil {
			return err
		}
		k.end = w.now()
		w.mu.Lock()
		w.outages = append(w.outages, k)
		w.mu.Unlock()
	}
	return nil
}

// settle asks for every operation until there is a definite answer. Before, everybody
// who lives has told how their attempts ended.
func (w *world) settle(ctx context.Context) error {
	clients := w.own
	for _, p := range w.processes {
		clients = append(clients, p.idem)
	}
	if err := closeAll(ctx, clients); err != nil {
		return err
	}
	judge := idem.New(w.processes[0].conn, idem.Options{Tenant: tenant, Owner: "judge"})
	w.each(func(o *operation) { w.judge(ctx, o, judge) })
	w.countSwept(ctx)
	return closeAll(ctx, []*idem.Client{judge})
}

// closeAll waits until all clients have told what they have to tell, for a minute.
func closeAll(ctx context.Context, clients []*idem.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, c := range clients {
		if err := c.Close(ctx); err != nil {
			return fmt.Errorf("a client can't tell how its attempts ended: %w", err)
		}
	}
	return ctx.Err()
}

// judge asks until the answer is definite, for a minute.
func (w *world) judge(ctx context.Context, o *operation, judge *idem.Client) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		c := &call{w: w, o: o, who: "judge", key: o.order, idem: judge}
		answer, err := judge.Do(ctx, w.operation(o, o.order, 10*time.Second), c.effect)
		heard := o.hear(w.now(), answer, err)
		o.note(w.now(), c.who, "hears %q: %v", heard, err)
		var unresolved *idem.UnresolvedError
		switch {
		case err == nil:
			o.end = end{receipt: string(answer.Result.GetBody())}
			return
		case heard == heardDeclined:
			o.end = end{declined: true}
			return
		case heard == heardExpired:
			o.end = end{expired: true}
			return
		case errors.As(err, &unresolved) && !o.plan.reconcile:
			o.end = end{unresolved: unresolved}
			return
		case ctx.Err() != nil:
			o.end = end{err: err}
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/internal/outboxtable"
	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// Relay sends the events of an outbox. Run several, in as many processes, for more
// throughput and for when one dies.
type Relay struct {
	config  Config
	outbox  *outbox.Outbox
	table   outboxtable.Table
	running atomic.Bool
}

// New checks the configuration. It connects to nothing.
func New(c Config) (*Relay, error) {
	c = c.defaulted()
	if err := c.check(); err != nil {
		return nil, err
	}
	o, err := outbox.New(c.Outbox)
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return &Relay{config: c, outbox: o, table: outboxtable.Table{Name: pgtable.Name{Schema: c.Outbox.Schema, Table: c.Outbox.Table}}}, nil
}

// Run sends events until ctx ends. Then it begins nothing more, waits for what is under way,
// at most SendTimeout, writes down what became of it, releases the rest and returns nil. An
// outage of the database or of the broker does not end it. An error says that it could not
// begin; a Relay runs once at a time.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("relay: it runs already")
	}
	defer r.running.Store(false)
	settings := r.config.Postgres.Copy()
	settings.MaxConns, settings.MinConns, settings.MinIdleConns = mostConns, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer pool.Close()
	w := &work{
		Relay:  r,
		store:  store{pool: pool, table: r.table, order: r.config.Outbox.Order, claim: r.config.Claim},
		sender: sender{config: r.config, late: late{arriving: make(chan struct{}, 1)}},
		judge:  judge{config: r.config, failedAt: map[string]time.Time{}},
	}
	if w.metrics, err = newMetrics(r, w, pool); err != nil {
		return fmt.Errorf("relay: metrics: %w", err)
	}
	defer w.metrics.stop()
	woken, stop := r.listen(ctx)
	defer stop()
	for ctx.Err() == nil {
		pause := w.round(ctx)
		if w.judge.away() || w.troubled > 0 {
			rest(ctx, pause, nil, nil) // new events don't shorten an outage
			continue
		}
		rest(ctx, pause, woken, w.sender.late.arriving)
	}
	for w.takeLate(ctx) {
		<-w.sender.late.arriving
	}
	return nil
}

// mostConns: one for the rounds, one for metrics, one to spare.
const mostConns = 3

// work is one Run.
type work struct {
	*Relay
	store   store
	sender  sender
	judge   judge
	metrics *metrics
	// isAway is judge.away for the metrics.
	isAway atomic.Bool
	// idle is how long the last pause was for want of work; troubled, for the database's.
	idle, troubled time.Duration
}

// How long pauses are where there is nothing to do, and where the database is away.
const (
	shortestPoll    = 50 * time.Millisecond
	longestTroubled = 5 * time.Second
	// cautiousBatch is how many are claimed while the broker gives no sign.
	cautiousBatch = 100
)

// round claims a batch, sends it and writes down what became of it. It tells how long to
// rest.
func (w *work) round(ctx context.Context) time.Duration {
	w.takeLate(ctx)
	if w.sender.stuck() {
		w.judge.silent++
		w.tellAway(ctx)
		return max(w.judge.pause(), shortestPoll)
	}
	limit, away := w.config.Batch, w.judge.away()
	if away {
		limit = min(limit, cautiousBatch)
	}
	c, err := w.store.take(ctx, limit, w.judge.look())
	if err != nil {
		return w.trouble(ctx, err)
	}
	w.troubled = 0
	if len(c.events)+len(c.lost) == 0 {
		return w.nothing(c.more)
	}
	w.idle = 0
	results := w.sender.send(ctx, c, lanes(c.events, w.config.Outbox.Order), away)
	o := w.judge.verdicts(ctx, c.events, results)
	o.released = append(o.released, c.lost...)
	w.tellAway(ctx)
	if err := w.settle(ctx, c, o); err != nil {
		// What was sent stays claimed and is sent again when the claim is over.
		return w.trouble(ctx, err)
	}
	w.account(ctx, c, results, o)
	switch {
	case w.judge.away():
		return w.judge.pause()
	case c.more && len(o.released) < len(c.events):
		return 0
	}
	return shortestPoll
}

// takeLate writes down what became of events that no round has waited for. It tells whether
// more are under way.
func (w *work) takeLate(ctx context.Context) (more bool) {
	arrived, more := w.sender.late.take()
	for _, l := range arrived {
		w.idle = 0 // others of its aggregate may wait for it
		results := []outcome{l.outcome}
		c := l.claimed
		c.events = []event{l.event}
		o := w.judge.verdicts(ctx, c.events, results)
		w.tellAway(ctx)
		if err := w.settle(ctx, c, o); err != nil {
			w.trouble(ctx, err)
			continue
		}
		w.account(ctx, c, results, o)
	}
	return more
}

// settle tries again, with the same token, while the claim holds: what has been sent and is
// not marked is sent again.
func (w *work) settle(ctx context.Context, c claimed, o outcomes) error {
	for pause := shortestPoll; ; pause = min(2*pause, longestTroubled) {
		marked, err := w.store.settle(ctx, c.token, o)
		late := int64(len(o.sent)) - marked
		switch {
		case err != nil && ctx.Err() == nil && time.Since(c.asked) < w.config.Claim:
			w.trouble(ctx, err)
			rest(ctx, jittered(pause), nil, nil)
			continue
		case err == nil && late > 0 && pause == shortestPoll: // else an earlier try may have marked them
			w.log(ctx, slog.LevelWarn, "events were acknowledged after their claim was over: they may be sent again", slog.Int64("events", late))
		}
		return err
	}
}

// nothing is the pause after a look that found nothing.
func (w *work) nothing(more bool) time.Duration {
	if more {
		return 0
	}
	w.idle = min(max(2*w.idle, shortestPoll), w.config.Poll)
	return jittered(w.idle)
}

// trouble is the pause after an error of the database. It is logged once.
func (w *work) trouble(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if w.troubled == 0 {
		w.log(ctx, slog.LevelWarn, "the database does not answer as it should", slog.String("error", err.Error()))
	}
	w.troubled = min(max(2*w.troubled, shortestPoll), longestTroubled)
	return jittered(w.troubled)
}

// tellAway logs when an outage begins and when it ends.
func (w *work) tellAway(ctx context.Context) {
	away := w.judge.away()
	if w.isAway.Swap(away) == away {
		return
	}
	if away {
		attributes := []slog.Attr{slog.Int("workers_hanging", int(w.sender.hanging.Load()))}
		if e := w.judge.lastFailure; e.id != "" {
			attributes = append(attributes, slog.String("event", e.id), slog.String("topic", e.topic), slog.String("error", e.text))
		}
		w.log(ctx, slog.LevelWarn, "the broker gives no sign", attributes...)
	} else {
		w.log(ctx, slog.LevelInfo, "the broker is there")
	}
}

// account counts what became of a batch, and logs what is parked.
func (w *work) account(ctx context.Context, c claimed, results []outcome, o outcomes) {
	for i := range results {
		if results[i].acknowledged() {
			w.metrics.lag.Record(ctx, (c.events[i].age + results[i].ended.Sub(c.at)).Seconds(), w.metrics.attributes)
		}
	}
	w.metrics.sent.Add(ctx, int64(len(o.sent)), w.metrics.attributes)
	for _, f := range o.failed {
		w.metrics.failure(ctx, f)
		if f.parked {
			w.log(ctx, slog.LevelError, "an event is parked", slog.String("event", f.id), slog.String("error", f.text))
		}
	}
}

func (w *work) log(ctx context.Context, level slog.Level, text string, attributes ...slog.Attr) {
	w.config.Logger.LogAttrs(ctx, level, "relay: "+text, append(attributes, slog.String("outbox", w.table.Schema+"."+w.table.Table))...)
}

// rest waits for the pause's end, the outbox's wake, a late outcome or ctx's end.
func rest(ctx context.Context, pause time.Duration, woken, late <-chan struct{}) {
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-late:
	case <-ctx.Done():
	}
}

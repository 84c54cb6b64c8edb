package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
	"github.com/idemd/idemd/internal/pgtest"
)

// The outbox's relay beside a plain loop, which takes one row, publishes it, marks it and
// commits. Both drain a table of pending events onto one NATS JetStream.
const (
	outboxOnly    = "outbox" // what -only says to measure this and nothing else
	natsRole      = "nats"   // the child that is the broker
	outboxPayload = 256      // bytes
)

// drain is one way to empty a table.
type drain struct {
	name   string
	events int // in the table
	// aggregates that the events are about: 0 = each about its own.
	aggregates int
	// run sends all of them and returns when all are marked.
	run func(ctx context.Context, b *outboxBench, table string, events int) error
	// make creates the table and fills it.
	make func(ctx context.Context, b *outboxBench, table string, d drain) error
}

// drains are all of them; size 1 = the plain ones have 1,000 events, relays 10,000.
func drains(size float64) []drain {
	plain := func(loops int) drain {
		return drain{
			name: fmt.Sprintf("plain, %d at once", loops), events: int(1000 * size), make: makePlain,
			run: func(ctx context.Context, b *outboxBench, table string, _ int) error {
				return drainPlain(ctx, b, table, loops)
			},
		}
	}
	relays := func(name string, order outbox.Order, aggregates int) drain {
		return drain{
			name: name, events: int(10_000 * size), aggregates: aggregates,
			make: func(ctx context.Context, b *outboxBench, table string, d drain) error {
				return makeOutbox(ctx, b, table, d, order)
			},
			run: func(ctx context.Context, b *outboxBench, table string, events int) error {
				return drainRelay(ctx, b, outbox.Config{Table: table, Order: order}, events)
			},
		}
	}
	return []drain{
		plain(1), plain(8),
		relays("relay, no order", outbox.None, 0),
		relays("relay, order per aggregate, each event its own", outbox.PerAggregate, 0),
		relays("relay, order per aggregate, 100 aggregates", outbox.PerAggregate, 100),
	}
}

// outboxBench is everything that runs meanwhile.
type outboxBench struct {
	database *pgtest.Server
	broker   *child
	pool     *pgxpool.Pool
}

// measureOutbox runs every drain in each round, and gives the table.
func measureOutbox(ctx context.Context, all []drain, rounds int) (string, error) {
	b := &outboxBench{}
	defer b.stop()
	if err := b.start(ctx); err != nil {
		return "", err
	}
	found := make(map[string][]outboxSample)
	for round := range rounds {
		for i := range all { // each round starts with another one
			if err := b.measure(ctx, all[(round+i)%len(all)], round, found); err != nil {
				return "", err
			}
		}
	}
	m := describeMachine(os.TempDir())
	if err := b.pool.QueryRow(ctx, "SHOW server_version").Scan(&m.Postgres); err != nil {
		return "", err
	}
	return outboxTable(all, found) + fmt.Sprintf("%d rounds; %d cores (%s), %s, %s on which fsync takes %s (median), %s, PostgreSQL %s, NATS %s.\n",
		rounds, m.Cores, m.CPU, m.Kernel, m.Filesystem, millis(m.Fsync), m.Go, m.Postgres, server.VERSION), nil
}

func (b *outboxBench) measure(ctx context.Context, d drain, round int, found map[string][]outboxSample) error {
	table := fmt.Sprintf("drain_%d", time.Now().UnixNano())
	if err := d.make(ctx, b, table, d); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if _, err := b.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	before, began := b.usage(), time.Now()
	if err := d.run(ctx, b, table, d.events); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	s := outboxSample{rate: float64(d.events) / time.Since(began).Seconds(), used: b.usage().minus(before), events: d.events}
	found[d.name] = append(found[d.name], s)
	_, _ = fmt.Fprintf(os.Stderr, "round %d: %s: %.0f events/s\n", round+1, d.name, s.rate)
	_, err := b.pool.Exec(ctx, "DROP TABLE "+table)
	return err
}

// outboxSample is one drain of one table.
type outboxSample struct {
	rate   float64 // events a second
	used   usage
	events int
}

// usage: the broker is the server.
func (b *outboxBench) usage() usage {
	return usage{client: cpuOf(os.Getpid()), server: cpuOf(b.broker.cmd.Process.Pid), database: cpuOfAll(b.database.Processes())}
}

func (b *outboxBench) start(ctx context.Context) (err error) {
	b.database, err = pgtest.New(pgtest.Setting("shared_buffers=256MB"), pgtest.Setting("max_wal_size=2GB"), pgtest.Setting("checkpoint_timeout=15min"))
	if err != nil {
		return err
	}
	if b.pool, err = pgxpool.New(ctx, b.database.DSN("postgres")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idemd-bench-")
	if err != nil {
		return err
	}
	if b.broker, err = startChild(ctx, natsRole, "", dirVariable+"="+dir); err != nil {
		return err
	}
	conn, err := nats.Connect(b.broker.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AddStream(&nats.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.event.*"}, MaxMsgs: 200_000})
	return err
}

func (b *outboxBench) stop() {
	if b.pool != nil {
		b.pool.Close()
	}
	if b.broker != nil {
		b.broker.stop()
	}
	if b.database != nil {
		b.database.Remove()
	}
}

// serveNATS is the child: a server with JetStream on disk, until its standard input ends.
func serveNATS(ctx context.Context) error {
	dir := os.Getenv(dirVariable)
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("the broker does not start")
	}
	fmt.Println(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

func (b *outboxBench) publisher() (message.Publisher, error) {
	return wmnats.NewPublisher(wmnats.PublisherConfig{URL: b.broker.address, Marshaler: &wmnats.NATSMarshaler{}}, nil)
}

// makeOutbox fills an outbox by plain SQL, as Add would leave it.
func makeOutbox(ctx context.Context, b *outboxBench, table string, d drain, order outbox.Order) error {
	o, err := outbox.New(outbox.Config{Table: table, Order: order})
	if err != nil {
		return err
	}
	if err := o.Migrate(ctx, b.pool); err != nil {
		return err
	}
	aggregate := "n"
	if d.aggregates > 0 {
		aggregate = fmt.Sprintf("n %% %d", d.aggregates)
	}
	_, err = b.pool.Exec(ctx, fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT gen_random_uuid(), 'order', (%s)::text, 'OrderPlaced', convert_to(repeat('x', %d), 'UTF8'), '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
		FROM generate_series(1, $1::int) n`, table, aggregate, outboxPayload), d.events)
	return err
}

// drainRelay runs one relay with its defaults until all are sent, and marked.
func drainRelay(ctx context.Context, b *outboxBench, config outbox.Config, events int) error {
	publisher, err := b.publisher()
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	settings, err := pgxpool.ParseConfig(b.database.DSN("postgres"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := relay.New(relay.Config{Outbox: config, Postgres: settings, Publisher: &countdown{publisher, newCountdown(events), cancel}})
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	o, err := outbox.New(config)
	if err != nil {
		return err
	}
	s, err := o.Stats(context.WithoutCancel(ctx), b.pool)
	if err == nil && s.Pending+s.Parked > 0 {
		err = fmt.Errorf("%d events are left", s.Pending+s.Parked)
	}
	return err
}

func outboxTable(all []drain, found map[string][]outboxSample) string {
	var out strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&out, format+"\n", args...) }
	values := func(d drain, value func(outboxSample) float64) (all []float64) {
		for _, s := range found[d.name] {
			all = append(all, value(s))
		}
		return all
	}
	rates := func(d drain) []float64 { return values(d, func(s outboxSample) float64 { return s.rate }) }
	cpu := func(d drain, of func(usage) time.Duration) float64 {
		return median(values(d, func(s outboxSample) float64 { return of(s.used).Seconds() * 1000 / float64(s.events) }))
	}
	line("| | events/s: median (min–max) | CPU s per 1,000 events: sender + broker + database | × plain, 1 at once |")
	line("|---|--:|--:|--:|")
	yardstick := median(rates(all[0]))
	for _, d := range all {
		r := rates(d)
		line("| %s | %.0f (%.0f–%.0f) | %.3f + %.3f + %.3f | %.1f |", d.name, median(r), slices.Min(r), slices.Max(r),
			cpu(d, func(u usage) time.Duration { return u.client }), cpu(d, func(u usage) time.Duration { return u.server }),
			cpu(d, func(u usage) time.Duration { return u.database }), ratio(median(r), yardstick))
	}
	line("")
	for _, d := range all[2:] {
		got := ratio(median(rates(d)), yardstick)
		line("- %s: %.1f × a plain loop; the bar is 5: %s", d.name, got, verdict(got >= 5))
	}
	line("")
	return out.String()
}

package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/internal/pgtest"
)

func TestAPublishThatHangsHoldsUpItsAggregateUntilTheClaimsEndAndNobodyElse(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	release, hung := make(chan struct{}), make(chan struct{})
	h.broker.refusing(func(_ string, m *message.Message) error {
		if string(m.Payload) == "1" && h.broker.tries("1") == 1 {
			close(hung)
			<-release
		}
		return nil
	})
	h.add(about("a", 1), about("a", 2), about("b", 3))
	c := h.survivor()
	h.run(c)
	<-hung
	began := time.Now()
	h.add(about("c", 4))
	h.until("others are out", func() bool { return h.broker.took("3")() && h.broker.took("4")() })
	h.drained()
	if took := time.Since(began); took < childClaim/2 {
		t.Errorf("the aggregate went on after %v, while its first event may still arrive", took)
	}
	if got := fmt.Sprint(h.broker.payloads("a")); got != "[1 2]" {
		t.Errorf("arrived: %s", got)
	}
	close(release)
	h.until("the late copy is there", func() bool { return len(h.broker.payloads("a")) == 3 })
}

func TestNoMorePublishesHangThanAreBoundedAndTheRelayRecovers(t *testing.T) {
	bothOrders(t, func(h *house) {
		release := make(chan struct{})
		var hanging atomic.Int64
		h.broker.refusing(func(string, *message.Message) error {
			hanging.Add(1)
			defer hanging.Add(-1)
			<-release
			return nil
		})
		h.add(many(40)...)
		c := h.settings()
		var log lockedBuffer
		c.Logger = textLogger(&log)
		c.Workers, c.SendTimeout, c.Claim = 3, 20*time.Millisecond, 100*time.Millisecond
		h.run(c)
		h.until("some hang, and their claims are over", func() bool { return hanging.Load() >= 3 && h.claims() == 0 })
		h.until("it says so", func() bool { return strings.Contains(log.String(), "no sign") })
		if n := hanging.Load(); n > 6 {
			h.Errorf("%d hang", n)
		}
		close(release)
		h.drained()
	})
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// claims are the rows that are claimed.
func (h *house) claims() (n int) {
	h.Helper()
	if err := h.pool.QueryRow(h.ctx, "SELECT count(*) FROM shop.outbox WHERE claimed_until > clock_timestamp()").Scan(&n); err != nil {
		h.Fatal(err)
	}
	return n
}

func TestARelayThatIsStoppedWaitsForWhatItHasBegunAndReleasesTheRest(t *testing.T) {
	bothOrders(t, func(h *house) {
		begun, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h.broker.refusing(func(string, *message.Message) error {
			once.Do(func() { close(begun) })
			<-release
			return nil
		})
		h.add(many(5)...)
		c := h.settings()
		c.Workers = 1
		ctx, cancel := context.WithCancel(h.ctx)
		wait := h.runUntil(ctx, c)
		<-begun
		cancel()
		close(release)
		wait()
		if s := h.stats(); len(h.broker.payloads("")) != 1 || s.Pending != 4 || h.claims() != 0 {
			h.Errorf("%d are sent, %d pending, %d claimed", len(h.broker.payloads("")), s.Pending, h.claims())
		}
	})
}

// claimCount counts the looks of a relay without an order.
type claimCount struct {
	claimTimes
	n atomic.Int64
}

func (c *claimCount) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "SET claimed_by = $1") {
			c.n.Add(1)
		}
	}
	return ctx
}

func TestABrokerThatIsAwayIsAskedByAFewEventsAtATime(t *testing.T) {
	h := newHouse(t, outbox.None)
	h.add(many(500)...)
	var tries, now, most atomic.Int64
	looks := &claimCount{}
	h.broker.refusing(func(string, *message.Message) error {
		tries.Add(1)
		if n := now.Add(1); looks.n.Load() > 1 && n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		return errors.New("connection refused")
	})
	c := h.settings()
	c.Postgres.ConnConfig.Tracer = looks
	h.run(c)
	h.until("it has looked some times", func() bool { return looks.n.Load() >= 5 })
	if n, bound := tries.Load(), 500+100*(looks.n.Load()-1); n > bound || most.Load() > 10 {
		t.Errorf("%d tries, at most %d; %d at once, at most 10", n, bound, most.Load())
	}
}

func TestAPublisherThatPanicsFailsItsEventOnly(t *testing.T) {
	h := newHouse(t, outbox.None)
	h.broker.refusing(func(_ string, m *message.Message) error {
		if string(m.Payload) == "0" {
			panic("secret")
		}
		return nil
	})
	h.add(many(1)...)
	c := h.settings()
	c.Attempts = 1
	c.Alive = func(context.Context) error { return nil }
	h.run(c)
	h.until("it is parked", func() bool { return h.stats().Parked == 1 })
	if text := h.parked()[0].LastError; text != "the publisher panicked with a string" {
		t.Errorf("the last error is %q", text)
	}
}

func TestARowThatAddDidNotWriteIsParkedAndHidesNoOther(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, headers)
			VALUES (gen_random_uuid(), 'order', 'a', 'Placed', '', '{"a": {"b": 1}}'), (gen_random_uuid(), 'order', 'b', 'Placed', '', 'null')`)
		h.add(about("c", 1))
		h.run(h.settings())
		h.until("the other is out", h.broker.took("1"))
		h.until("it is parked", func() bool { return h.stats().Parked == 1 })
	})
}

func TestAnErrorIsStoredWithoutMoreThan500Bytes(t *testing.T) {
	h := newHouse(t, outbox.None)
	h.broker.refusing(func(string, *message.Message) error { return errors.New("\x00" + strings.Repeat("ä", 300)) })
	h.add(many(1)...)
	c := h.settings()
	c.Attempts = 1
	c.Alive = func(context.Context) error { return nil }
	h.run(c)
	h.until("it is parked", func() bool { return h.stats().Parked == 1 })
	if text := h.parked()[0].LastError; text != strings.Repeat("ä", 250) {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestARelayGoesOnWhenTheDatabaseIsBack(t *testing.T) {
	server := pgtest.Start(t)
	h := newHouseOn(t, server.DSN("postgres"), outbox.Config{Schema: "shop", Order: outbox.PerAggregate, Notify: true})
	h.run(h.settings())
	h.add(about("a", 1))
	h.until("the first is out", h.broker.took("1"))
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	h.pool.Reset()
	h.add(about("a", 2))
	h.until("the second is out", h.broker.took("2"))
}

// A transaction that stays open must not hold up what was committed before it.
func TestAnOpenTransactionDoesNotHoldUpWhatItsAggregateHasCommitted(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.add(about("a", 1))
	open, err := h.pool.Begin(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(h.ctx) }()
	if err := h.outbox.Add(h.ctx, open, about("a", 2)); err != nil {
		t.Fatal(err)
	}
	h.run(h.settings())
	h.until("the first is out", h.broker.took("1"))
}

// Scenario 85.
func TestRelaysOfTwoOutboxesInOneProcessSendTheirOwn(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	other := newHouseOn(t, h.dsn, outbox.Config{Schema: "warehouse", Table: "events", Order: outbox.None})
	h.run(h.settings())
	c := other.settings()
	c.Topic = func(e outbox.Event) string { return e.Type }
	other.run(c)
	h.add(about("a", 1))
	other.add(about("a", 2))
	h.drained()
	other.drained()
	if ours, theirs := h.broker.all(), other.broker.all(); len(ours) != 1 || len(theirs) != 1 || string(ours[0].Payload) != "1" ||
		string(theirs[0].Payload) != "2" || theirs[0].Metadata["topic"] != "OrderPlaced" {
		t.Errorf("arrived: %v, %v", ours, theirs)
	}
}

func TestARedrivenEventIsSentUnderItsId(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.broker.refusing(func(string, *message.Message) error { return errors.New("no") })
		h.add(about("a", 1))
		c := h.settings()
		c.Attempts = 1
		c.Alive = func(context.Context) error { return nil }
		h.run(c)
		h.until("it is parked", func() bool { return h.stats().Parked == 1 })
		h.broker.refusing(nil)
		id := h.parked()[0].ID
		if n, err := h.outbox.RedriveAll(h.ctx, h.pool, "OrderPlaced"); n != 1 || err != nil {
			h.Fatal(n, err)
		}
		h.drained()
		if got := h.broker.all(); len(got) != 1 || got[0].UUID != id {
			h.Errorf("arrived: %v", got)
		}
	})
}

func TestSweepingUnderLoadLosesNothing(t *testing.T) {
	bothOrders(t, func(h *house) {
		for range 2 {
			h.run(h.settings())
		}
		ctx, cancel := context.WithCancel(h.ctx)
		swept := make(chan int64, 1)
		go func() {
			var sum int64
			defer func() { swept <- sum }()
			for ctx.Err() == nil {
				n, err := h.outbox.Sweep(h.ctx, h.pool, time.Microsecond)
				if err != nil {
					h.Error(err)
				}
				sum += n
			}
		}()
		for range 20 {
			h.add(many(100)...)
		}
		h.drained()
		cancel()
		sum := <-swept
		rest, err := h.outbox.Sweep(h.ctx, h.pool, time.Microsecond)
		if err != nil || sum+rest != 2000 || len(h.broker.payloads("")) != 2000 {
			h.Errorf("%d are swept (%v), %d arrived", sum+rest, err, len(h.broker.payloads("")))
		}
	})
}

func TestTheTraceOfTheRequestIsTheMessagesToo(t *testing.T) {
	h := newHouse(t, outbox.None)
	request := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	err := pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error {
		return h.outbox.Add(trace.ContextWithSpanContext(h.ctx, request), tx, about("a", 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	h.run(h.settings())
	h.drained()
	m := h.broker.all()[0]
	if got := trace.SpanContextFromContext(m.Context()); got.TraceID() != request.TraceID() || got.SpanID() != request.SpanID() || !got.IsRemote() {
		t.Errorf("in the context: %v", got)
	}
	if got := m.Metadata.Get("traceparent"); got != "00-01000000000000000000000000000000-0200000000000000-01" {
		t.Errorf("in the metadata: %q", got)
	}
}

// claimTimes tells when a relay looks for events.
type claimTimes struct{ at chan time.Time }

func (c *claimTimes) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.at <- time.Now()
	return ctx
}
func (c *claimTimes) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *claimTimes) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (c *claimTimes) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *claimTimes) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestANotificationWakesARelayThatWouldLookMuchLater(t *testing.T) {
	server := postgres.Server(t)
	h := newHouseOn(t, server.DSN(server.Database(t, "")), outbox.Config{Schema: "shop", Order: outbox.None, Notify: true})
	c := h.settings()
	looks := &claimTimes{make(chan time.Time, 100)}
	c.Postgres.ConnConfig.Tracer = looks
	c.Poll = time.Minute
	h.run(c)
	// Pauses double: once one has been 1.2 s, the next one is at least 2 s.
	for last := (time.Time{}); ; {
		at := <-looks.at
		if !last.IsZero() && at.Sub(last) > 1200*time.Millisecond {
			break
		}
		last = at
	}
	added := time.Now()
	h.add(about("a", 1))
	h.until("it is out", h.broker.took("1"))
	if took := time.Since(added); took > 1500*time.Millisecond {
		t.Errorf("it took %v", took)
	}
}

// Scenario 77.
func TestAnOutboxThatIsRestoredIntoAFreshClusterGoesOn(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	stop := h.run(h.settings())
	h.add(about("a", 1))
	h.until("one is sent", func() bool { return h.broker.took("1")() && h.stats().Pending == 0 })
	stop()
	h.add(about("a", 2), about("b", 3))
	fresh := pgtest.Start(t)
	restored := newHouseOn(t, restore(h, fresh), h.config)
	restored.add(about("a", 4))
	restored.run(restored.settings())
	restored.drained()
	if got := fmt.Sprint(restored.broker.payloads("a"), restored.broker.payloads("b")); got != "[2 4] [3]" {
		t.Errorf("arrived: %s", got)
	}
}

// restore dumps the house's database and restores it on another server, with PostgreSQL's
// own programs.
func restore(h *house, into *pgtest.Server) (dsn string) {
	h.Helper()
	var programs, libraries string
	err := h.pool.QueryRow(h.ctx, `SELECT (SELECT setting FROM pg_config WHERE name = 'BINDIR'), (SELECT setting FROM pg_config WHERE name = 'LIBDIR')`).Scan(&programs, &libraries)
	if err != nil {
		h.Fatal(err)
	}
	dump := filepath.Join(h.TempDir(), "dump")
	dsn = into.DSN("postgres")
	for _, arguments := range [][]string{{"pg_dump", "--format=custom", "--file=" + dump, h.dsn}, {"pg_restore", "--exit-on-error", "--dbname=" + dsn, dump}} {
		cmd := exec.CommandContext(h.ctx, filepath.Join(programs, arguments[0]), arguments[1:]...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
		if out, err := cmd.CombinedOutput(); err != nil {
			h.Fatalf("%s: %v\n%s", arguments[0], err, out)
		}
	}
	return dsn
}

func TestARelayUsesConnectionsOfItsOwnAndFew(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	c := h.settings()
	c.Postgres.MaxConns, c.Postgres.MinConns = 50, 20
	c.Postgres.ConnConfig.RuntimeParams["application_name"] = "the relay"
	h.add(many(200)...)
	h.run(c)
	h.drained()
	var n int
	if err := h.pool.QueryRow(h.ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the relay' AND datname = current_database()").Scan(&n); err != nil || n < 1 || n > 3 {
		t.Errorf("%d connections, %v", n, err)
	}
	if c.Postgres.MaxConns != 50 {
		t.Error("the caller's configuration is changed")
	}
}

// Poolers of transactions ask for one or another of them.
func TestItWorksInEachOfTheDriversModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			bothOrders(t, func(h *house) {
				server := h.settings()
				server.Postgres.ConnConfig.DefaultQueryExecMode = mode
				writers, err := pgxpool.NewWithConfig(h.ctx, server.Postgres.Copy())
				if err != nil {
					h.Fatal(err)
				}
				h.Cleanup(writers.Close)
				h.pool = writers
				server.Attempts = 1
				server.Alive = func(context.Context) error { return nil }
				bad := about("b", 1)
				bad.Payload = []byte{0, 0xff, '\\', '\''}
				h.broker.refusing(func(_ string, m *message.Message) error {
					if m.Metadata[outbox.AggregateIDHeader] == "b" {
						return errors.New("no")
					}
					return nil
				})
				h.add(append(many(3), bad)...)
				h.run(server)
				h.drained()
				h.broker.refusing(nil)
				if n, err := h.outbox.Redrive(h.ctx, h.pool, h.parked()[0].ID); n != 1 || err != nil {
					h.Fatal(n, err)
				}
				h.drained()
				if all := h.broker.all(); len(all) != 4 || string(all[3].Payload) != string(bad.Payload) {
					h.Errorf("arrived: %v", all)
				}
				if n, err := h.outbox.Sweep(h.ctx, h.pool, time.Microsecond); n != 4 || err != nil {
					h.Errorf("%d are swept, %v", n, err)
				}
			})
		})
	}
}

// breaker cuts the connection when a relay first wants to mark what it has sent.
type breaker struct {
	claimTimes
	cut atomic.Bool
}

func (b *breaker) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		if strings.Contains(q.SQL, "sent_at = clock_timestamp()") && !b.cut.Swap(true) {
			_ = conn.PgConn().Conn().Close()
		}
	}
	return ctx
}

func TestWhatIsSentIsMarkedAtASecondTryWhereTheFirstOneFails(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.add(many(20)...)
		c := h.settings()
		cut := &breaker{}
		c.Postgres.ConnConfig.Tracer = cut
		h.run(c)
		h.drained()
		if n := len(h.broker.payloads("")); n != 20 || !cut.cut.Load() {
			h.Errorf("%d arrived, cut: %v", n, cut.cut.Load())
		}
	})
}

func TestNothingIsBegunThatMightNotEndWithinItsClaim(t *testing.T) {
	bothOrders(t, func(h *house) {
		c := h.survivor()
		c.Workers = 1
		h.broker.refusing(func(_ string, m *message.Message) error {
			var left time.Duration
			err := h.pool.QueryRow(h.ctx, "SELECT claimed_until - clock_timestamp() FROM shop.outbox WHERE id = $1", m.UUID).Scan(&left)
			if err != nil || left < c.SendTimeout {
				h.Errorf("begun with %v left of the claim (%v)", left, err)
			}
			<-time.After(c.SendTimeout / 2) // a slow broker
			return nil
		})
		h.add(many(10)...) // half as much again as fits into a claim
		h.run(c)
		h.drained()
		if n := len(h.broker.payloads("")); n != 10 {
			h.Errorf("%d arrived", n)
		}
	})
}

func textLogger(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }

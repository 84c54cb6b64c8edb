package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/internal/pgtest"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

// house is a database with an outbox.
type house struct {
	*testing.T
	ctx    context.Context
	pool   *pgxpool.Pool
	outbox *outbox.Outbox
}

func newHouse(t *testing.T, order outbox.Order) *house {
	t.Helper()
	server := postgres.Server(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	pool, err := pgxpool.New(ctx, server.DSN(server.Database(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h := &house{T: t, ctx: ctx, pool: pool}
	h.outbox = h.newOutbox(outbox.Config{Schema: "shop", Order: order})
	return h
}

func (h *house) newOutbox(c outbox.Config) *outbox.Outbox {
	h.Helper()
	o, err := outbox.New(c)
	if err != nil {
		h.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := o.Migrate(h.ctx, h.pool); err != nil {
			h.Fatal(err)
		}
	}
	return o
}

func (h *house) begin() pgx.Tx {
	h.Helper()
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (h *house) commit(tx pgx.Tx) {
	h.Helper()
	if err := tx.Commit(h.ctx); err != nil {
		h.Fatal(err)
	}
}

func (h *house) add(events ...outbox.Event) {
	h.Helper()
	tx := h.begin()
	if err := h.outbox.Add(h.ctx, tx, events...); err != nil {
		h.Fatal(err)
	}
	h.commit(tx)
}

func (h *house) exec(sql string, arguments ...any) {
	h.Helper()
	if _, err := h.pool.Exec(h.ctx, sql, arguments...); err != nil {
		h.Fatal(err)
	}
}

// one is a query's only value.
func one[T any](h *house, sql string, arguments ...any) (value T) {
	h.Helper()
	if err := h.pool.QueryRow(h.ctx, sql, arguments...).Scan(&value); err != nil {
		h.Fatal(err)
	}
	return value
}

func (h *house) list(state outbox.State) (types []string) {
	h.Helper()
	rows, err := h.outbox.List(h.ctx, h.pool, state, 0, outbox.MaxList)
	if err != nil {
		h.Fatal(err)
	}
	for _, row := range rows {
		types = append(types, row.Type)
	}
	return types
}

// awaitLock waits until a session waits for another's lock.
func (h *house) awaitLock() {
	h.Helper()
	for one[int](h, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") == 0 {
		if h.ctx.Err() != nil {
			h.Fatal("nobody waits")
		}
	}
}

func about(aggregateID, eventType string) outbox.Event {
	return outbox.Event{AggregateType: "order", AggregateID: aggregateID, Type: eventType}
}

func TestAnEventThatBreaksALimitIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	long := strings.Repeat("x", 256)
	headers := map[string]string{}
	for i := range 65 {
		headers[fmt.Sprint(i)] = ""
	}
	for name, spoil := range map[string]func(e *outbox.Event){
		"id":                                 func(e *outbox.Event) { e.ID = "1" },
		"id in upper case":                   func(e *outbox.Event) { e.ID = "0190A2C4-7B1E-7C3D-8A4F-0123456789AB" },
		"no aggregate type":                  func(e *outbox.Event) { e.AggregateType = "" },
		"aggregate type, long":               func(e *outbox.Event) { e.AggregateType = long },
		"a wildcard":                         func(e *outbox.Event) { e.AggregateType = "order.>" },
		"an empty part":                      func(e *outbox.Event) { e.AggregateType = "order..x" },
		"no aggregate id":                    func(e *outbox.Event) { e.AggregateID = "" },
		"aggregate id, long":                 func(e *outbox.Event) { e.AggregateID = long },
		"aggregate id, no text":              func(e *outbox.Event) { e.AggregateID = "\xff" },
		"type with a zero byte":              func(e *outbox.Event) { e.Type = "a\x00" },
		"no type":                            func(e *outbox.Event) { e.Type = "" },
		"payload":                            func(e *outbox.Event) { e.Payload = make([]byte, outbox.MaxPayloadBytes+1) },
		"too many headers":                   func(e *outbox.Event) { e.Headers = headers },
		"a header that NATS drops copies by": func(e *outbox.Event) { e.Headers = map[string]string{"nats-Msg-Id": "x"} },
		"a header that Watermill knows copies by": func(e *outbox.Event) { e.Headers = map[string]string{"_watermill_message_uuid": "x"} },
		"a header that consumers know copies by":  func(e *outbox.Event) { e.Headers = map[string]string{"idem_message_id": "x"} },
		"large headers":                           func(e *outbox.Event) { e.Headers = map[string]string{"a": strings.Repeat("x", outbox.MaxHeaderBytes)} },
		"a header's name":                         func(e *outbox.Event) { e.Headers = map[string]string{"a b": ""} },
		"a header's line break":                   func(e *outbox.Event) { e.Headers = map[string]string{"a": "b\r\nc: d"} },
		"the relay's header":                      func(e *outbox.Event) { e.Headers = map[string]string{outbox.TypeHeader: "x"} },
	} {
		tx := h.begin()
		e := about("a", "Placed")
		spoil(&e)
		var invalid *outbox.InvalidError
		if err := h.outbox.Add(h.ctx, tx, about("b", "Placed"), e); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
		h.commit(tx) // it still can
	}
	if n := one[int](h, "SELECT count(*) FROM shop.outbox"); n != 0 {
		t.Errorf("%d rows are written", n)
	}
	var invalid *outbox.InvalidError
	large := make([]outbox.Event, 17)
	for i := range large {
		large[i] = about("a", "Placed")
		large[i].Payload = make([]byte, outbox.MaxPayloadBytes)
	}
	if err := h.outbox.Add(h.ctx, h.begin(), large...); !errors.As(err, &invalid) {
		t.Errorf("17 MiB in one call: %v", err)
	}
	if err := h.outbox.Add(h.ctx, h.begin(), large[1:]...); err != nil {
		t.Errorf("16 MiB in one call: %v", err)
	}
	if err := h.outbox.Add(h.ctx, h.begin()); !errors.As(err, &invalid) {
		t.Errorf("no events: %v", err)
	}
	if err := h.outbox.Add(h.ctx, nil, about("a", "Placed")); !errors.As(err, &invalid) {
		t.Errorf("no transaction: %v", err)
	}
}

func TestEventsAtTheLimitsAreTaken(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	e := about(strings.Repeat("ä", 127)+"x", strings.Repeat("x", 255))
	e.AggregateType = strings.Repeat("x", 200)
	e.Payload = make([]byte, outbox.MaxPayloadBytes)
	e.Headers = map[string]string{"a": strings.Repeat("x", outbox.MaxHeaderBytes-1)}
	h.add(e)
	events := make([]outbox.Event, outbox.MaxEvents)
	for i := range events {
		events[i] = about(fmt.Sprint(i), "Placed")
	}
	h.add(events...)
	if n := one[int](h, "SELECT count(*) FROM shop.outbox"); n != outbox.MaxEvents+1 {
		t.Errorf("%d rows", n)
	}
}

func TestPositionsAreInTheOrderOfTheEventsInACall(t *testing.T) {
	h := newHouse(t, outbox.None)
	var events []outbox.Event
	var want []string
	for i := range 500 {
		want = append(want, fmt.Sprint(i))
		events = append(events, about(fmt.Sprint(i%7), fmt.Sprint(i)))
	}
	h.add(events...)
	if got := h.list(outbox.Pending); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

func TestWithinAnAggregatePositionsAreInTheOrderOfTheCommits(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	first := h.begin()
	if err := h.outbox.Add(h.ctx, first, about("a", "first")); err != nil {
		t.Fatal(err)
	}
	h.add(about("b", "another's")) // does not wait
	added := make(chan error, 1)
	go func() {
		added <- pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error { return h.outbox.Add(h.ctx, tx, about("a", "second")) })
	}()
	h.awaitLock()
	if err := h.outbox.Add(h.ctx, first, about("a", "first again")); err != nil {
		t.Fatal(err)
	}
	h.commit(first)
	if err := <-added; err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.list(outbox.Pending)); got != "[first another's first again second]" {
		t.Errorf("%v", got)
	}
}

func TestWithoutAnOrderNobodyWaits(t *testing.T) {
	h := newHouse(t, outbox.None)
	open := h.begin()
	if err := h.outbox.Add(h.ctx, open, about("a", "first")); err != nil {
		t.Fatal(err)
	}
	h.add(about("a", "second"))
}

// Scenario 95, for the outbox.
func TestTransactionsThatAddForTheSameAggregatesInOtherOrdersDoNotDeadlock(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 100 {
				var events []outbox.Event
				for _, a := range random.Perm(6) {
					events = append(events, about(fmt.Sprint(a), "Placed"))
				}
				err := pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error { return h.outbox.Add(h.ctx, tx, events...) })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

// Scenario 85.
func TestOutboxesInOneProcessDoNotKnowOfEachOther(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	other := h.newOutbox(outbox.Config{Schema: "warehouse", Order: outbox.PerAggregate})
	h.exec("SET search_path = warehouse")
	open := h.begin()
	if err := h.outbox.Add(h.ctx, open, about("a", "Placed")); err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error { return other.Add(h.ctx, tx, about("a", "Stored")) }); err != nil {
		t.Fatal(err)
	}
	h.commit(open)
	if got := fmt.Sprint(h.list(outbox.Pending)); got != "[Placed]" {
		t.Errorf("%v", got)
	}
}

func TestTheTraceOfTheRequestGoesIntoTheHeaders(t *testing.T) {
	h := newHouse(t, outbox.None)
	state, err := trace.ParseTraceState("vendor=value")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(h.ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	own := about("a", "with its own")
	own.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	headers := maps.Clone(own.Headers)
	tx := h.begin()
	if err := h.outbox.Add(ctx, tx, about("a", "without"), own); err != nil {
		t.Fatal(err)
	}
	h.commit(tx)
	got := one[map[string]string](h, "SELECT headers FROM shop.outbox WHERE type = 'without'")
	if got["traceparent"] != "00-01000000000000000000000000000000-0200000000000000-01" || got["tracestate"] != "vendor=value" {
		t.Errorf("%v", got)
	}
	if got := one[map[string]string](h, "SELECT headers FROM shop.outbox WHERE type = 'with its own'"); !maps.Equal(got, headers) {
		t.Errorf("%v", got)
	}
}

// Scenarios 87 and 91, for the outbox.
func TestAnIdThatIsKnownIsRefused(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	e := about("a", "Placed")
	e.ID = "0190a2c4-7b1e-7c3d-8a4f-0123456789ab"
	if err := h.outbox.Add(h.ctx, h.begin(), e, e); err == nil {
		t.Error("it is added twice in one call")
	}
	h.add(e)
	if err := h.outbox.Add(h.ctx, h.begin(), e); err == nil {
		t.Error("it is added twice")
	}
}

func TestWhatIsAddedIsOnDiskWhenItIsCommitted(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	for session, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply"} {
		tx := h.begin()
		if _, err := tx.Exec(h.ctx, "SET LOCAL synchronous_commit = "+session); err != nil {
			t.Fatal(err)
		}
		if err := h.outbox.Add(h.ctx, tx, about("a", "Placed")); err != nil {
			t.Fatal(err)
		}
		var is string
		if err := tx.QueryRow(h.ctx, "SHOW synchronous_commit").Scan(&is); err != nil || is != want {
			t.Errorf("%s became %s, %v", session, is, err)
		}
		h.commit(tx)
	}
}

func TestAnOutboxThatNotifiesDoesSoAtTheCommitOnly(t *testing.T) {
	h := newHouse(t, outbox.None)
	o := h.newOutbox(outbox.Config{Schema: "shop", Order: outbox.None, Notify: true})
	conn, err := h.pool.Acquire(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	channel := one[string](h, "SELECT 'outbox_' || left(encode(sha256(convert_to('channel', 'UTF8') || '\\x00'::bytea || 'shop' || '\\x00'::bytea || 'outbox'), 'hex'), 16)")
	if _, err := conn.Exec(h.ctx, "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	h.add(about("a", "quiet"))
	tx := h.begin()
	if err := o.Add(h.ctx, tx, about("a", "loud")); err != nil {
		t.Fatal(err)
	}
	h.exec("SELECT pg_notify('" + channel + "', 'before')")
	h.commit(tx)
	var heard []string
	for range 2 {
		n, err := conn.Conn().WaitForNotification(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, n.Payload)
	}
	if heard[0] != "before" || heard[1] != "" {
		t.Errorf("heard %q", heard)
	}
}

func TestAConfigurationThatLeavesTheOrderOpenOrHasABadNameIsRefused(t *testing.T) {
	for _, c := range []outbox.Config{{}, {Order: 3}, {Order: outbox.None, Schema: "a b"}, {Order: outbox.None, Table: "X"}} {
		if _, err := outbox.New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// Two packages' tables of one name would both be the first one's, and a table of somebody
// else's stays as it is.
func TestATableThatIsNotItsOwnIsNotTakenForIt(t *testing.T) {
	h := newHouse(t, outbox.None)
	for name, made := range map[string]string{
		"theirs": "CREATE TABLE shop.theirs (id int)",
		"marks": `CREATE TABLE shop.marks (consumer text); CREATE TABLE shop.marks_schema_version (id int PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
			version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp timestamp NOT NULL DEFAULT now());
			INSERT INTO shop.marks_schema_version (version_id, is_applied) VALUES (0, true), (1, true)`,
	} {
		h.exec(made)
		o, err := outbox.New(outbox.Config{Schema: "shop", Table: name, Order: outbox.None})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Migrate(h.ctx, h.pool); err == nil || !strings.Contains(err.Error(), "choose another name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASchemaWhoseNameWouldHaveToBeQuotedIsRefused(t *testing.T) {
	h := newHouse(t, outbox.None)
	o, err := outbox.New(outbox.Config{Schema: "order", Order: outbox.None})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Migrate(h.ctx, h.pool); err == nil || !strings.Contains(err.Error(), "reserved word") {
		t.Errorf("got %v", err)
	}
}

package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/propagation"

	"github.com/idemd/idemd/clients/go/idem"
)

// Add writes events, 1 to 1,000, with payloads of 16 MiB together, in the caller's own transaction, in the order given, in one
// round trip. A transaction with synchronous_commit off gets it on: what is sent must not be
// undone by a crash. The trace that ctx is part of goes into their headers (traceparent,
// tracestate), unless they have one.
//
// The error is an *InvalidError, before anything was written, or the database's: then the
// transaction must not commit.
//
// With PerAggregate, Add waits until no other transaction that has added events of the same
// aggregates is open. So add late in a transaction, and everything in one call: two
// transactions that call Add several times, for the same aggregates in different orders,
// deadlock, and PostgreSQL refuses one of them (40P01), which is to be run again. Each aggregate
// takes one entry of the server's table of locks until the end.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, events ...Event) error {
	if tx == nil || len(events) == 0 || len(events) > MaxEvents {
		return &InvalidError{"events", fmt.Sprintf("%d; 1 to %d, and a transaction", len(events), MaxEvents)}
	}
	size := 0
	for _, e := range events {
		size += len(e.Payload)
	}
	if size > MaxCallBytes {
		return &InvalidError{"payload", fmt.Sprintf("%d bytes in one call; at most %d", size, MaxCallBytes)}
	}
	rows, err := newColumns(ctx, events)
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	// A relay sees a transaction that is committed and not yet on disk.
	batch.Queue(`SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'`)
	if o.order == PerAggregate {
		batch.Queue(o.lockAggregates(), rows.aggregateTypes, rows.aggregateIDs)
	}
	batch.Queue(o.insert(), rows.ids, rows.aggregateTypes, rows.aggregateIDs, rows.types, rows.payloads, rows.headers)
	if o.notify {
		batch.Queue(`SELECT pg_notify($1, '')`, o.table.Channel())
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// lockAggregates takes the locks in one order, whoever asks. It comes before the insert
// takes positions: so within an aggregate these are in the order of the commits.
func (o *Outbox) lockAggregates() string {
	return `SELECT pg_advisory_xact_lock(key) FROM (
		SELECT DISTINCT ` + o.table.WriterLock("a.type", "a.id") + ` AS key FROM unnest($1::text[], $2::text[]) AS a (type, id) ORDER BY key) AS k`
}

func (o *Outbox) insert() string {
	return `INSERT INTO ` + o.table.String() + ` (id, aggregatetype, aggregateid, type, payload, headers)
		SELECT e.id, e.aggregatetype, e.aggregateid, e.type, e.payload, e.headers::jsonb
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::text[])
			WITH ORDINALITY AS e (id, aggregatetype, aggregateid, type, payload, headers, n)
		ORDER BY e.n`
}

// columns are events, column by column, as one statement takes them.
type columns struct {
	ids, aggregateTypes, aggregateIDs, types []string
	payloads                                 [][]byte
	headers                                  []string
}

func newColumns(ctx context.Context, events []Event) (columns, error) {
	trace := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, trace)
	var c columns
	for _, e := range events {
		if e.ID == "" {
			e.ID = idem.NewKey()
		}
		e.Headers = withTrace(e.Headers, trace)
		if err := e.check(); err != nil {
			return columns{}, err
		}
		headers, err := json.Marshal(e.Headers)
		if err != nil {
			return columns{}, errors.New("outbox: the headers can't be written as JSON")
		}
		c.ids, c.types = append(c.ids, e.ID), append(c.types, e.Type)
		c.aggregateTypes, c.aggregateIDs = append(c.aggregateTypes, e.AggregateType), append(c.aggregateIDs, e.AggregateID)
		if e.Payload == nil {
			e.Payload = []byte{}
		}
		c.payloads, c.headers = append(c.payloads, e.Payload), append(c.headers, string(headers))
	}
	return c, nil
}

// withTrace is the headers and the trace; never nil, which would be a null in JSON.
func withTrace(headers map[string]string, trace propagation.MapCarrier) map[string]string {
	if _, has := headers["traceparent"]; has {
		return headers
	}
	all := map[string]string{}
	maps.Copy(all, headers)
	maps.Copy(all, trace)
	return all
}

package relay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/internal/outboxtable"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// databaseTimeout bounds each statement's time, so that a connection that is dead
// unnoticed does not stop a relay.
const databaseTimeout = 15 * time.Second

// store is the table, as one relay works on it.
type store struct {
	pool  *pgxpool.Pool
	table outboxtable.Table
	order outbox.Order
	claim time.Duration
	// A pass goes over all that is pending. With PerAggregate it has come to the aggregate after,
	// ends at last, and has found something or not; with None it has come to a position.
	after    aggregate
	last     aggregate
	found    bool
	position int64
	began    time.Time
}

// longestPass: with None, what a pass has left behind (what failed, what committed late) is
// looked at again after this long, however much there is before the pass's end.
const longestPass = time.Second

type aggregate struct{ kind, id string }

// claimed is a batch that is this relay's for a while.
type claimed struct {
	token pgtype.UUID
	// asked is when the claim was asked for: it ends no earlier than the claim's duration after it.
	asked, at time.Time
	events    []event
	// lost are claimed, too, but stand behind a row that somebody changed meanwhile.
	lost []string
	// more: looking again at once is worth it.
	more bool
}

// event is a claimed row.
type event struct {
	outbox.Event
	attempts int
	// age is how old it was when it was claimed.
	age time.Duration
	// damaged: its headers are not what Add writes.
	damaged bool
}

// steadyPlan keeps PostgreSQL from plans that sort all that is pending, which it chooses
// for a table that it has no fresh statistics of. It holds until the transaction ends.
const steadyPlan = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('jit', 'off', true)`

const free = `claimed_until <= clock_timestamp() AND next_attempt_at <= clock_timestamp()`

// look is where events are looked for, with None; aggregates are always gone through in turn.
type look int

const (
	inTurn     look = iota // first come first, and what was passed by again each second
	newest                 // last come first: those that have just failed are not among them
	throughout             // in turn, to the end, however long that takes
)

// take claims up to limit events.
func (s *store) take(ctx context.Context, limit int, where look) (claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	c := claimed{asked: time.Now()}
	c.token.Valid = true
	_, _ = rand.Read(c.token.Bytes[:]) // never fails: see crypto/rand
	var err error
	if s.order == outbox.PerAggregate {
		err = s.takeAggregates(ctx, &c, limit)
	} else {
		err = s.takeAny(ctx, &c, limit, where)
	}
	if err != nil {
		return claimed{}, fmt.Errorf("claim: %w", err)
	}
	c.at = time.Now()
	return c, nil
}

// takeAny is one statement, in a transaction with its settings. It goes on where the last
// one stopped: what was sent lies dead in the way, and PostgreSQL can't remove it while any
// transaction is open that began before.
func (s *store) takeAny(ctx context.Context, c *claimed, limit int, where look) error {
	direction, from := "ASC", s.position
	switch {
	case where == newest:
		direction, from = "DESC", 0
	case from == 0, where == inTurn && time.Since(s.began) > longestPass:
		from, s.began = 0, time.Now()
	}
	reached := int64(0)
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(steadyPlan)
	batch.Queue(fmt.Sprintf(`WITH found AS MATERIALIZED (
			SELECT id, position, octet_length(payload) AS size FROM %[1]s
			WHERE state = %[2]d AND position > $4 AND %[3]s ORDER BY position %[4]s LIMIT $3 FOR UPDATE SKIP LOCKED),
		mine AS MATERIALIZED (SELECT id FROM `+upToMostBytes("found", "position "+direction)+`)
		UPDATE %[1]s AS t SET claimed_by = $1::uuid, claimed_until = clock_timestamp() + make_interval(secs => $2) FROM mine WHERE t.id = mine.id
		RETURNING `+columns+`, t.position`, s.table, outboxtable.Pending, free, direction), c.token, s.claim.Seconds(), limit, from).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (placed, error) {
			var p placed
			return p, scanEvent(row, &p.event, &p.position)
		})
		slices.SortFunc(found, func(a, b placed) int { return int(a.position - b.position) })
		for _, p := range found {
			c.events, reached = append(c.events, p.event), p.position
		}
		return err
	})
	batch.Queue("COMMIT")
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	full := len(c.events) == limit || c.bytes() >= mostBytes
	c.more = full || from > 0
	switch {
	case where == newest:
	case full:
		s.position = reached
	default:
		s.position = 0
	}
	return nil
}

// mostBytes bounds the payloads of a batch, all but the last one's: up to 1,000 events of
// 1 MiB would else be in memory at once.
const mostBytes = 16 << 20

// upToMostBytes are the first of the found rows, in an order, that stay within it.
func upToMostBytes(found, order string) string {
	return fmt.Sprintf(`(SELECT *, sum(size) OVER (ORDER BY %s) - size AS before FROM %s) AS summed WHERE before < %d`, order, found, mostBytes)
}

func (c *claimed) bytes() (sum int) {
	for _, e := range c.events {
		sum += len(e.Payload)
	}
	return sum
}

type placed struct {
	event    event
	position int64
}

// columns are what scanEvent reads.
const columns = `t.id::text, t.aggregatetype, t.aggregateid, t.type, t.payload, t.headers::text, t.attempts, clock_timestamp() - t.created_at`

func scanEvent(row pgx.CollectableRow, e *event, others ...any) error {
	var headers string
	err := row.Scan(append([]any{&e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Payload, &headers, &e.attempts, &e.age}, others...)...)
	if err != nil {
		return err
	}
	e.damaged = json.Unmarshal([]byte(headers), &e.Headers) != nil
	return nil
}

// outcomes are what became of a batch's events.
type outcomes struct {
	sent, released []string
	failed         []failed
}

type failed struct {
	id string
	// parked: it is not tried again.
	parked bool
	// counted: it used up an attempt.
	counted bool
	// hangs: its sending goes on, so nobody may try before the claim's end.
	hangs bool
	pause time.Duration
	text  string
}

// settle writes what became of a batch, all of it or nothing, in one round trip. It tells
// how many rows have been marked as sent: fewer than there are where the claim is over and another relay has them.
func (s *store) settle(ctx context.Context, token pgtype.UUID, o outcomes) (marked int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue(steadyPlan)
	if len(o.sent) > 0 {
		batch.Queue(fmt.Sprintf(`UPDATE %s SET state = %d, sent_at = clock_timestamp(), claimed_by = NULL, claimed_until = '-infinity'
			WHERE id = ANY($2::uuid[]) AND state = %d AND claimed_by = $1::uuid`, s.table, outboxtable.Sent, outboxtable.Pending), token, o.sent).
			Exec(func(tag pgconn.CommandTag) error { marked = tag.RowsAffected(); return nil })
	}
	if len(o.released) > 0 {
		batch.Queue(fmt.Sprintf(`UPDATE %s SET claimed_by = NULL, claimed_until = '-infinity'
			WHERE id = ANY($2::uuid[]) AND state = %d AND claimed_by = $1::uuid AND claimed_until > clock_timestamp()`, s.table, outboxtable.Pending), token, o.released)
	}
	s.queueFailed(batch, token, o.failed)
	batch.Queue("COMMIT")
	if err := s.pool.SendBatch(ctx, batch).Close(); err != nil {
		return 0, fmt.Errorf("settle: %w", err)
	}
	return marked, nil
}

// queueFailed: once a claim is over, its failures are the next one's to find.
func (s *store) queueFailed(batch *pgx.Batch, token pgtype.UUID, all []failed) {
	if len(all) == 0 {
		return
	}
	var ids, texts []string
	var states, counts []int32
	var hang []bool
	var pauses []float64
	for _, f := range all {
		state, count := int32(outboxtable.Pending), int32(0)
		if f.parked {
			state = outboxtable.Parked
		}
		if f.counted {
			count = 1
		}
		ids, texts, hang, pauses = append(ids, f.id), append(texts, f.text), append(hang, f.hangs), append(pauses, f.pause.Seconds())
		states, counts = append(states, state), append(counts, count)
	}
	batch.Queue(fmt.Sprintf(`UPDATE %s AS t SET state = f.state, attempts = t.attempts + f.count, last_error = f.text,
			next_attempt_at = greatest(clock_timestamp() + make_interval(secs => f.pause), CASE WHEN f.hangs THEN t.claimed_until END),
			claimed_by = NULL, claimed_until = '-infinity'
		FROM unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::float8[], $7::bool[]) AS f (id, state, count, text, pause, hangs)
		WHERE t.id = f.id AND t.state = %d AND t.claimed_by = $1::uuid AND t.claimed_until > clock_timestamp()`, s.table, outboxtable.Pending),
		token, ids, states, counts, texts, pauses, hang)
}

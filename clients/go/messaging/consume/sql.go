package consume

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
)

// Beginner begins transactions: a *pgxpool.Pool.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

type txKey struct{}

// Tx is the transaction in which the message of a handler under SQL is handled. The
// handler does not end it. False: there is none.
func Tx(ctx context.Context) (pgx.Tx, bool) {
	tx, is := ctx.Value(txKey{}).(pgx.Tx)
	return tx, is
}

// SQL makes middleware for handlers whose effect is in the database of the inbox: begin,
// mark, handle (in the transaction that [Tx] finds in the message's context), commit, and
// only then acknowledge. A message that is done is acknowledged without its handler; a copy
// that comes at the same time waits for the end of the first one.
//
// A handler's error or panic rolls back, and is counted in a transaction of its own. After
// Options.Attempts of them the message goes to Options.DeadLetter, and is acknowledged once
// it is there; dead letters can come twice, under one UUID. Messages that a handler returns
// are an error: they belong in an outbox.
//
// Not counted are errors that say nothing about the message: the database away, read-only
// or out of resources, serialization failures, deadlocks and lock time-outs, the end of the
// message's context, what is declared [Transient], and what the inbox's own statements meet.
// The message is delivered again then. So is a message that ends its process: let the broker
// bound that.
func SQL(db Beginner, table *inbox.Table, o Options) (message.HandlerMiddleware, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	switch {
	case db == nil || table == nil:
		return nil, errors.New("consume: SQL needs a database and an inbox")
	case o.Attempts < 0:
		return nil, fmt.Errorf("consume: %d Attempts", o.Attempts)
	case o.Unresolved != "" || o.Fingerprint != nil || !zero(o.Operation):
		return nil, errors.New("consume: Unresolved, Operation and Fingerprint are for Idem")
	case o.Attempts == 0:
		o.Attempts = DefaultAttempts
	}
	c := &sqlConsumer{db, table, o}
	return func(handler message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return nil, c.consume(msg, handler) }
	}, nil
}

// zero: nothing is set. An operation has functions in it, and can't be compared.
func zero(op idem.Operation) bool {
	return op.Tenant == "" && op.Namespace == "" && op.Key == "" && op.Mode == 0 && op.Lease == 0 && op.Retention == 0 && op.Wait == 0 &&
		op.MinRemaining == 0 && op.PolicyVersion == "" && op.Settle == 0 && op.Reconcile == nil && op.FirstAttemptAt.IsZero() &&
		op.Fingerprint.Scheme == "" && op.Fingerprint.Digest == nil
}

type sqlConsumer struct {
	db    Beginner
	table *inbox.Table
	Options
}

// consume is nil where the message is to be acknowledged.
func (c *sqlConsumer) consume(msg *message.Message, handler message.HandlerFunc) error {
	m, err := c.identify(msg)
	if err != nil {
		return c.bury(msg, err, 1)
	}
	ctx := traced(msg)
	counts, err := c.handle(ctx, m, func(ctx context.Context, tx pgx.Tx) error {
		return call(context.WithValue(ctx, txKey{}, tx), handler, msg)
	})
	if err == nil || !counts {
		return err
	}
	attempts, uncounted := c.count(ctx, m, err)
	switch {
	case uncounted != nil:
		return errors.Join(err, fmt.Errorf("consume: the failure can't be counted: %w", uncounted))
	case attempts < c.Attempts:
		return fmt.Errorf("consume: attempt %d of %d: %w", attempts, c.Attempts, err)
	}
	return c.bury(msg, err, attempts)
}

// handle is the transaction. counts: its error is one of the message's attempts.
func (c *sqlConsumer) handle(ctx context.Context, m inbox.Message, fn func(context.Context, pgx.Tx) error) (counts bool, err error) {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var failure error
	if _, _, err = c.table.Once(ctx, tx, m, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		failure = fn(ctx, tx)
		return nil, failure
	}); err != nil {
		return c.counts(ctx, tx, failure, err), err
	}
	if err = c.table.Settle(ctx, tx, m); err != nil {
		return false, err
	}
	if err = tx.Commit(ctx); err != nil {
		// What the handler wrote can be refused as late as here: by deferred constraints.
		return refused(err) && !innocent(ctx, err), err
	}
	return false, nil
}

// counts: of an error of Once, whether it is the handler's, and about its message.
func (c *sqlConsumer) counts(ctx context.Context, tx pgx.Tx, failure, err error) bool {
	var said *pgconn.PgError
	if errors.As(err, &said) && said.Code == idleTooLong {
		return true // what ends the transaction is how long the handler takes
	}
	if failure == nil {
		// A handler that has swallowed an error leaves a transaction that accepts nothing.
		return said != nil && said.Code == transactionAborted
	}
	// Who lets a time-out end a statement ends the connection with it: that is no outage.
	own := errors.Is(failure, context.DeadlineExceeded) || errors.Is(failure, context.Canceled)
	return !innocent(ctx, failure) && (own || !tx.Conn().IsClosed())
}

// refused: the database has said why it does not commit.
func refused(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said)
}

// count notes a failure, after the rollback.
func (c *sqlConsumer) count(ctx context.Context, m inbox.Message, cause error) (attempts int, err error) {
	tx, err := c.db.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if attempts, err = c.table.CountFailure(ctx, tx, m, summary(cause)); err != nil {
		return 0, err
	}
	return attempts, tx.Commit(ctx)
}

package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgconn"
)

// PanicError is a handler's panic. It counts as a failure.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error. The stack is in it, for routers log nothing else.
func (e *PanicError) Error() string { return e.summary() + "\n" + string(e.Stack) }

// summary tells the value where it is a text; it may be anything, and hold anything.
func (e *PanicError) summary() string {
	switch e.Value.(type) {
	case error, string, fmt.Stringer:
		return fmt.Sprintf("consume: the handler panicked: %v", e.Value)
	}
	return fmt.Sprintf("consume: the handler panicked with a %T", e.Value)
}

// safely makes an error of a panic of what is not ours.
func safely(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return f()
}

// summary is what is kept of an error.
func summary(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return p.summary()
	}
	return err.Error()
}

// errProduced refuses messages that a handler returns.
var errProduced = errors.New("consume: the handler returned messages to publish, and a crash before they are would lose them: " +
	"add them to the outbox in the same transaction (consume.Tx), or publish them within the handler")

type transient struct{ err error }

// Error implements error.
func (t *transient) Error() string { return t.err.Error() }

// Unwrap implements errors.Is.
func (t *transient) Unwrap() error { return t.err }

// Transient declares that a handler's error says nothing about its message (another service
// is away): SQL does not count it as an attempt. With Idem say idem.NotExecuted.
// Transient(nil) is nil.
func Transient(err error) error {
	if err == nil {
		return nil
	}
	return &transient{err}
}

// innocent: the error says nothing about the message, and may be over by the next delivery.
func innocent(ctx context.Context, err error) bool {
	var declared *transient
	var connect *pgconn.ConnectError
	if ctx.Err() != nil || errors.As(err, &declared) || errors.As(err, &connect) {
		return true
	}
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return false
	}
	switch said.Code[:min(2, len(said.Code))] {
	case "08", "40", "53", "58", "57": // connection, rollback, resources, system, intervention
		return said.Code != queryCanceled
	}
	return said.Code == lockNotAvailable || said.Code == readOnly
}

// Codes of PostgreSQL, appendix A of its manual.
const (
	queryCanceled      = "57014" // by a time-out: the message may be what takes so long
	lockNotAvailable   = "55P03"
	readOnly           = "25006" // a server that is a standby now
	transactionAborted = "25P02"
	idleTooLong        = "25P03"
)

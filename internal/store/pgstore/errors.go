package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	featureNotSupported  = "0A000" // "cached plan must not change result type"
	unknownStatement     = "26000" // a pooler gave us another server connection
	duplicateStatement   = "42P05"
	readOnlyTransaction  = "25006"
	tooManyConnections   = "53300"
	dataCorrupted        = "XX001"
	decidedTooLongAgo    = "IDEM1" // idemd.demand_recent
)

var errNotCommitted = errors.New("the transaction was rolled back")

// remedy is what to do about a failed transaction.
type remedy uint8

const (
	giveUp remedy = iota
	// runAgain: the transaction did nothing, and the next will likely succeed.
	runAgain
	// runAgainLater: the connection or the server is gone, perhaps after the commit:
	// commands are run again with their tokens.
	runAgainLater
	// decideAgain: it waited too long between the decision and the write.
	decideAgain
	// split: one of its addresses is held; the others need not wait for it.
	split
	// isolate: the database can't read one of its rows; the others are none the worse.
	isolate
)

func remedyFor(err error) remedy {
	var refused *pgconn.PgError
	switch {
	case errors.Is(err, context.Canceled):
		return giveUp
	case !errors.As(err, &refused):
		return runAgainLater
	}
	switch refused.Code {
	case serializationFailure, deadlockDetected, featureNotSupported, unknownStatement, duplicateStatement:
		return runAgain
	case decidedTooLongAgo:
		return decideAgain
	case lockNotAvailable:
		return split
	case dataCorrupted:
		return isolate
	case readOnlyTransaction, tooManyConnections:
		return runAgainLater
	}
	switch refused.Code[:2] {
	case "08", "57", "58": // connection, operator intervention, system error
		return runAgainLater
	}
	return giveUp
}

// damaged tells whether the database can't read what is on its disk.
func damaged(err error) bool { return remedyFor(err) == isolate }

// lost tells whether the connection is of no use any more although it may look sound:
// behind it is a server that has become a standby.
func lost(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == readOnlyTransaction
}

// describe is what a log may hold of a driver's error: neither details, which quote
// keys, nor the connection's parameters.
func describe(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Message + " (SQLSTATE " + refused.Code + ")"
	}
	var connecting *pgconn.ConnectError
	if errors.As(err, &connecting) && connecting.Unwrap() != nil {
		return "can't connect: " + strings.ReplaceAll(connecting.Unwrap().Error(), "\n", "; ")
	}
	return err.Error()
}

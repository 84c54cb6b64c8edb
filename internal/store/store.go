package store

import (
	"context"
	"errors"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// Store keeps reservations. All methods may be called at the same time from many
// goroutines.
//
// The laws:
//
//  1. Durable before answered. What an outcome or a read tells is on disk before it
//     is returned: it survives kill -9 and a power cut.
//  2. One truth. Every transition is what [reservation.Decide] says, or is proven
//     equal to it by package storetest.
//  3. Every write repeats its condition. No write goes by an earlier read alone.
//  4. Time is the store's own clock, read after the record is held against other
//     writers. It does not step back.
//  5. Sweeping is only disk. No outcome depends on whether Sweep ran.
//  6. Fail closed. What can't be done is answered with an error; nothing is guessed.
//     After a commit whose fate is unknown, the same command is run again with its
//     token.
//  7. Everything is bounded.
//  8. Nothing is lost. A record that can't be decoded is kept, answered with
//     RECORD_UNREADABLE, reported by Check, and hides no other.
//  9. Tenants are walls.
type Store interface {
	// Apply runs each command through Decide, atomically for its address, and
	// answers each in the order given. Commands on one address run in the order
	// given and see each other's effects; those on different addresses are
	// independent: one that fails fails no other. Commands have passed Validate;
	// their number is at most MaxBatch.
	//
	// Besides the outcomes of Decide a command can be answered with a
	// [*reservation.Error] of reason STORE_UNAVAILABLE (it may or may not have been
	// done: run it again), RECORD_UNREADABLE, or with [Busy].
	//
	// ctx bounds the whole batch. A batch is not undone when ctx ends: its commands
	// are answered with STORE_UNAVAILABLE.
	Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome

	// Get reads the records that are wanted, at most MaxBatch, together with the
	// store's clock. What is as it was last seen is left out, and costs the store
	// little: this is what waiting goes by. It takes no locks and changes nothing.
	// The clock is not later than what was read: what has lapsed by it had lapsed.
	// Error: STORE_UNAVAILABLE.
	Get(ctx context.Context, wanted []Wanted) (Snapshot, error)

	// List reads a page of the records that a query selects, in the order of their
	// addresses, without what can be large: result, checkpoint and history. What has
	// expired is missing, swept or not. One that can't be decoded hides no other. Error:
	// STORE_UNAVAILABLE.
	List(ctx context.Context, query Query) (Page, error)

	// Audit reads a page of the acts of operators, newest first. They were stored in
	// the same commit as the change that each is about, and nothing removes them. Error:
	// STORE_UNAVAILABLE.
	Audit(ctx context.Context, query AuditQuery) (AuditPage, error)

	// Sweep deletes at most limit expired records, oldest expiry first, and takes out at
	// most limit bodies of results that have expired before their records; it tells how
	// far it came. It never deletes a record that is PROCESSING, UNKNOWN or within its
	// retention by the store's clock at the moment of deletion, nor takes out the body
	// of another result than the one that has expired. Several processes may sweep at the
	// same time. Error: STORE_UNAVAILABLE; what was swept before stays swept.
	Sweep(ctx context.Context, limit int) (Swept, error)

	// Stats counts. Error: STORE_UNAVAILABLE.
	Stats(ctx context.Context) (Stats, error)

	// Check reads everything and reports what is damaged: records that can't be
	// decoded, impossible records, indexes that disagree with records. It changes
	// nothing. At most MaxFaults are reported; their number is not cut. Error:
	// STORE_UNAVAILABLE.
	Check(ctx context.Context) (Report, error)

	// Ping tells whether the store can answer now. Error: STORE_UNAVAILABLE, or one
	// that wraps [ErrFailed] where only opening the store again can help.
	Ping(ctx context.Context) error

	// Close waits for what is under way and lets go of the store. Calls after it
	// are answered with STORE_UNAVAILABLE.
	Close() error
}

// ErrFailed says that the store has failed for good, as after an fsync that failed, and answers
// again only after it is closed and opened.
var ErrFailed = errors.New("the store has failed and must be opened again")

// MaxBatch is the most commands that one Apply takes, and the most addresses that
// one Get takes.
const MaxBatch = 1000

// MaxFaults is how many faults a Report names.
const MaxFaults = 100

// IsBusy tells whether an outcome says that a rival held the address: nothing was
// done, the command should be applied again soon. It is never told to callers.
func IsBusy(outcome reservation.Outcome) bool {
	err, refused := outcome.(*reservation.Error)
	return refused && err.Reason == busy
}

const busy reservation.Reason = "BUSY"

// Busy is the outcome that [IsBusy] finds.
func Busy() *reservation.Error {
	return &reservation.Error{Reason: busy, Message: "another writer holds this reservation", RetryAfter: UnavailableRetry}
}

// UnavailableRetry is the retry hint of STORE_UNAVAILABLE.
const UnavailableRetry = 200 * time.Millisecond

// Unavailable is the refusal for a store that can't answer. What the driver said
// stays with the store's log: it may name hosts and users.
func Unavailable() *reservation.Error {
	return &reservation.Error{
		Reason:     reservation.StoreUnavailable,
		Message:    "the store can't answer now; retry with the same owner token",
		RetryAfter: UnavailableRetry,
	}
}

// Unreadable is the refusal for a record that can't be decoded.
func Unreadable() *reservation.Error {
	return &reservation.Error{
		Reason:  reservation.RecordUnreadable,
		Message: "the record at this address is damaged; it is kept for repair: run idemd check",
	}
}

// Wanted asks for the record at an address, unless it is as it was last seen.
type Wanted struct {
	reservation.Address
	Seen Seen
}

// Want asks for the records at addresses, seen or not.
func Want(addresses ...reservation.Address) []Wanted {
	wanted := make([]Wanted, len(addresses))
	for i, address := range addresses {
		wanted[i].Address = address
	}
	return wanted
}

// Seen is a store's mark of a record as it showed it. The zero mark is no record's.
type Seen struct {
	Version int64
	// Place says where the store found it: its own business.
	Place uint64
}

// Snapshot is what Get read.
type Snapshot struct {
	Now reservation.Time
	// Found are the records that are not as they were last seen, in the order asked.
	Found []Found
}

// Found is a record that was read, or that there is none.
type Found struct {
	// Index is the place of the address among the wanted.
	Index int
	// Record is nil where there is none, or it can't be decoded.
	Record     *reservation.Record
	Unreadable bool
	// Seen is the mark for the next time; zero where there is no record.
	Seen Seen
}

// Swept is how far a sweep came.
type Swept struct {
	Deleted  int // records
	Stripped int // results of their bodies
	// More: something that has expired is left.
	More bool
	// Lag is how long the oldest that is left, record or body, has been expired.
	Lag time.Duration
}

// Report is what Check found.
type Report struct {
	Records    int64
	FaultCount int64
	Faults     []Fault
}

// Fault is one thing that is damaged.
type Fault struct {
	Address reservation.Address
	Problem string
}

// Add notes a fault.
func (r *Report) Add(address reservation.Address, problem string) {
	r.FaultCount++
	if len(r.Faults) < MaxFaults {
		r.Faults = append(r.Faults, Fault{Address: address, Problem: problem})
	}
}

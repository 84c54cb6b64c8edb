package outboxtable

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/idemd/idemd/clients/go/messaging/internal/pgtable"
)

// The states of a row, as they are stored.
const (
	Pending = 0
	Sent    = 1
	Parked  = 2
)

// Table is an outbox's table.
type Table struct{ pgtable.Name }

// WriterLock is the key, an expression of SQL, of the advisory lock that a writer holds
// from when it takes an aggregate's positions until its transaction ends. The arguments are
// expressions for the aggregate's type and id.
func (t Table) WriterLock(aggregateType, aggregateID string) string {
	return t.lock("writer", aggregateType, aggregateID)
}

// RelayLock is the same for a relay that claims an aggregate's events. It is another lock:
// a transaction that is open for long must not hold up what was committed before it.
func (t Table) RelayLock(aggregateType, aggregateID string) string {
	return t.lock("relay", aggregateType, aggregateID)
}

// lock parts the locks of different tables by the seed. The unit separator is in no
// aggregate's type.
func (t Table) lock(role, aggregateType, aggregateID string) string {
	sum := t.digest(role)
	return fmt.Sprintf(`hashtextextended(%s || E'\x1f' || %s, %d)`, aggregateType, aggregateID, int64(binary.BigEndian.Uint64(sum[:])))
}

// Channel is the one that new events are notified on. Its bytes are at most 57, as a
// channel's name must be below 64.
func (t Table) Channel() string {
	sum := t.digest("channel")
	return fmt.Sprintf("%s_%x", t.Table, sum[:8])
}

func (t Table) digest(role string) [sha256.Size]byte {
	return sha256.Sum256([]byte(role + "\x00" + t.Schema + "\x00" + t.Table))
}

package reservation

// Act is what an operator did.
type Act uint8

// The acts. Stored values never change their number.
const (
	ActResolve Act = 1
	ActErase   Act = 2
)

// String is the act's name in the documentation.
func (a Act) String() string { return name(int(a), "UNSET", "RESOLVE", "ERASE") }

// Standing is where a record stood: its state as it was shown, and its version.
type Standing struct {
	State   State
	Version int64
}

// AuditEntry is one act of an operator that changed a record. Stores keep it for good,
// in the same commit as the change.
type AuditEntry struct {
	// ID is given by the store: 1, 2, … in the order of the commits, without gaps.
	ID    int64
	At    Time // by the store's clock
	Actor string
	Act   Act
	Address
	Before, After Standing
	Verdict       Verdict // ActResolve
	// Reason and Evidence are what the actor gave.
	Reason, Evidence string
	ResultDigest     ResultDigest // of a verdict's result; zero = none
}

// Audited is what is to be kept of a command that made after of before; nil where it is
// no operator's, or has changed nothing.
func Audited(now Time, command Command, before, after *Record) *AuditEntry {
	if before == nil || before == after {
		return nil
	}
	entry := &AuditEntry{
		At: now, Address: command.Target(),
		Before: Standing{before.Shown(now), before.Version}, After: Standing{after.Shown(now), after.Version},
	}
	switch c := command.(type) {
	case *Resolve:
		entry.Act, entry.Actor, entry.Verdict, entry.Reason, entry.Evidence = ActResolve, c.Actor, c.Verdict, c.Reason, c.Evidence
		if c.Result != nil {
			entry.ResultDigest = c.Result.Digest()
		}
	case *Erase:
		entry.Act, entry.Actor, entry.Reason = ActErase, c.Actor, c.Reason
	default:
		return nil
	}
	return entry
}

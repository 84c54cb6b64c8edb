package store

import (
	"slices"

	"github.com/idemd/idemd/internal/reservation"
)

// Group is the commands of one batch on one address.
type Group struct {
	Address reservation.Address
	// Indexes are the places of its commands in the batch, in order.
	Indexes []int
}

// Groups sorts a batch by address; the order within one address is kept. Writers
// that hold records in this order can't deadlock.
func Groups(commands []reservation.Command) []Group {
	place := make(map[reservation.Address]int, len(commands))
	groups := make([]Group, 0, len(commands))
	for i, c := range commands {
		address := c.Target()
		at, seen := place[address]
		if !seen {
			at = len(groups)
			place[address] = at
			groups = append(groups, Group{Address: address})
		}
		groups[at].Indexes = append(groups[at].Indexes, i)
	}
	slices.SortFunc(groups, func(a, b Group) int { return a.Address.Compare(b.Address) })
	return groups
}

// Fold runs the commands of a group on the record, in order, and notes each outcome.
// It returns what is to be stored: rec itself if nothing changed; and with it, in the same
// commit, the acts of operators.
func (g Group) Fold(now reservation.Time, rec *reservation.Record, commands []reservation.Command, outcomes []reservation.Outcome) (*reservation.Record, []*reservation.AuditEntry) {
	var acts []*reservation.AuditEntry
	for _, i := range g.Indexes {
		before := rec
		rec, outcomes[i] = reservation.Decide(now, before, commands[i])
		if act := reservation.Audited(now, commands[i], before, rec); act != nil {
			acts = append(acts, act)
		}
	}
	return rec, acts
}

// Answer notes one outcome for every command of the group.
func (g Group) Answer(outcome reservation.Outcome, outcomes []reservation.Outcome) {
	for _, i := range g.Indexes {
		outcomes[i] = outcome
	}
}

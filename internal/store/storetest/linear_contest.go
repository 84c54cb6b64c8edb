package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// contest is one epoch: rivals at work on a few addresses.
type contest struct {
	t         T
	h         *Harness
	stores    []store.Store
	addresses []reservation.Address
	random    []*rand.Rand // of each rival
	stamps    atomic.Int64
	entries   [][]entry // of each rival
	// What each rival knows of an address: the last version it was told, and whether it
	// was the owner when last it asked.
	versions []map[reservation.Address]int64
	owns     []map[reservation.Address]bool
}

func newContest(t T, h *Harness, stores []store.Store, seed uint64, epoch int) *contest {
	c := &contest{t: t, h: h, stores: stores, entries: make([][]entry, rivals)}
	for i := range 3 {
		c.addresses = append(c.addresses, At(fmt.Sprintf("epoch-%d-%d", epoch, i)))
	}
	for i := range rivals {
		c.random = append(c.random, rand.New(rand.NewPCG(seed, uint64(epoch*rivals+i))))
		c.versions = append(c.versions, make(map[reservation.Address]int64))
		c.owns = append(c.owns, make(map[reservation.Address]bool))
	}
	return c
}

// phase has every rival take its turns. The clock stands still.
func (c *contest) phase() {
	now := c.h.Now()
	together(rivals, func(i int) {
		for range turns {
			c.turn(i, now)
		}
	})
}

// turn is one batch of a rival, and now and then a sweep, of which nobody must notice.
func (c *contest) turn(rival int, now reservation.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	s := c.stores[rival%len(c.stores)]
	if c.random[rival].IntN(8) == 0 {
		if _, err := s.Sweep(ctx, 10); err != nil {
			c.t.Errorf("Sweep: %v", err)
		}
	}
	var commands []reservation.Command
	for range 1 + c.random[rival].IntN(3) {
		commands = append(commands, c.command(rival))
		// Who looks at what it left behind fixes its place in the order. Without that the
		// search for one takes for ever: strangers' evidence, for one, stands in the record
		// in the order of its arrival.
		if c.random[rival].IntN(3) > 0 {
			commands = append(commands, Lookup(commands[len(commands)-1].Target()))
		}
	}
	c.run(ctx, s, rival, now, commands)
}

// run applies a batch as the engine does, what is busy again and again, and notes the
// commands on each address as one entry, which is how they must be done.
func (c *contest) run(ctx context.Context, s store.Store, rival int, now reservation.Time, commands []reservation.Command) {
	begin := c.stamps.Add(1)
	for len(commands) > 0 {
		outcomes := s.Apply(ctx, commands)
		end := c.stamps.Add(1)
		var busy []reservation.Command
		for _, group := range store.Groups(commands) {
			e := entry{rival: rival, begin: begin, end: end, now: now, address: group.Address}
			for _, i := range group.Indexes {
				e.commands, e.outcomes = append(e.commands, commands[i]), append(e.outcomes, outcomes[i])
			}
			if store.IsBusy(e.outcomes[0]) {
				busy = append(busy, e.commands...)
				continue
			}
			c.note(e)
		}
		if commands = busy; len(commands) > 0 && !breathe(ctx) {
			c.t.Errorf("%d commands were busy for %v", len(commands), deadline)
			return
		}
	}
}

// breathe lets rivals go on; false = the time is over.
func breathe(ctx context.Context) bool {
	select {
	case <-time.After(time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// note keeps an entry, and what it tells the rival.
func (c *contest) note(e entry) {
	c.entries[e.rival] = append(c.entries[e.rival], e)
	for i, outcome := range e.outcomes {
		if _, asked := e.commands[i].(*reservation.Reserve); asked {
			_, c.owns[e.rival][e.address] = outcome.(*reservation.Owned)
		}
		version := int64(0)
		switch o := outcome.(type) {
		case *reservation.Found:
			version = o.Record.Version
		case *reservation.Unresolved:
			version = o.Version
		case *reservation.Recorded:
			version = o.Version
		case *reservation.Error:
			version = o.Version
		}
		if version > 0 {
			c.versions[e.rival][e.address] = version
		}
	}
}

// command draws one of a rival's commands. Mostly it minds its own business.
func (c *contest) command(rival int) reservation.Command {
	random := c.random[rival]
	a := c.addresses[random.IntN(len(c.addresses))]
	caller := rival
	if random.IntN(8) == 0 {
		caller = random.IntN(rivals)
	}
	if !c.owns[rival][a] && random.IntN(4) > 0 {
		return c.reserve(a, caller, random)
	}
	body := fmt.Sprint("body ", random.IntN(2))
	switch random.IntN(8) {
	case 0:
		return c.reserve(a, caller, random)
	case 1:
		e := Extend(a, caller)
		e.CheckpointSequence, e.Checkpoint = random.Uint64N(3), []byte(body)
		return e
	case 2, 3, 4:
		return Complete(a, caller, body)
	case 5:
		return Fail(a, caller, []reservation.OutcomeKind{reservation.ToldRetryable, reservation.ToldFinal, reservation.ToldUnknown}[random.IntN(3)], body)
	case 6:
		verdict := []reservation.Verdict{reservation.VerdictNotExecuted, reservation.VerdictSucceeded}[random.IntN(2)]
		r := Resolve(a, max(1, c.versions[rival][a]), verdict, body)
		r.BreakLease = random.IntN(2) == 0
		return r
	}
	return Lookup(a)
}

// reserve draws a Reserve. A quarter have a token that nobody has again, and in whose
// name nobody finishes: those lapse.
func (c *contest) reserve(a reservation.Address, caller int, random *rand.Rand) reservation.Command {
	if random.IntN(4) == 0 {
		caller = rivals + random.IntN(1000)
	}
	r := Reserve(a, caller)
	if random.IntN(2) == 0 {
		Rerunnable(r)
	}
	if random.IntN(16) == 0 {
		r.Fingerprint = Print(2)
	}
	return r
}

// describe writes an entry in one line.
func (e entry) describe(to io.Writer) {
	parts := make([]string, len(e.commands))
	for i, command := range e.commands {
		parts[i] = kindOf(command) + tokenOf(command) + " → " + summary(e.outcomes[i])
	}
	_, _ = fmt.Fprintf(to, "%5d–%-5d at %d rival %d: %s\n", e.begin, e.end, e.now, e.rival, strings.Join(parts, " · "))
}

// kindOf is the name of a command's or an outcome's type.
func kindOf(v any) string { return strings.TrimPrefix(fmt.Sprintf("%T", v), "*reservation.") }

// tokenOf is whose token a command has.
func tokenOf(command reservation.Command) string {
	var token reservation.Token
	switch c := command.(type) {
	case *reservation.Reserve:
		token = c.Token
	case *reservation.Extend:
		token = c.Token
	case *reservation.Complete:
		token = c.Token
	case *reservation.Fail:
		token = c.Token
	default:
		return ""
	}
	return fmt.Sprint(" by ", binary.BigEndian.Uint64(token[16:]))
}

func summary(outcome reservation.Outcome) string {
	switch o := outcome.(type) {
	case *reservation.Error:
		return string(o.Reason)
	case *reservation.Owned:
		return fmt.Sprintf("Owned attempt %d fence %d repeated %v", o.Attempt, o.Fence, o.Repeated)
	case *reservation.Found:
		return fmt.Sprintf("Found %v version %d", o.Shown, o.Record.Version)
	case *reservation.Recorded:
		return fmt.Sprintf("Recorded version %d repeated %v", o.Version, o.Repeated)
	}
	return kindOf(outcome)
}

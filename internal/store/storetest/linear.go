package storetest

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// Linearizable lets callers meddle with few addresses at the same time, one command or
// several at a time, and demands that what they were answered can be put in one order
// that fits both real time and Decide. A twin is a further store on the same data, as a
// second daemon has it; nil = one process serves the data.
func Linearizable(t *testing.T, open Open, twin func(testing.TB, *Harness) store.Store) {
	h := open(t)
	stores := []store.Store{h.Store}
	if twin != nil {
		stores = append(stores, twin(t, h))
	}
	seed := rand.Uint64()
	t.Logf("seed %d (it gives the same calls, not the same order)", seed)
	compete(t, h, stores, seed)
}

// How much is done.
const (
	epochs     = 6 // each with addresses of its own
	rivals     = 6
	turns      = 3 // of each rival between two moves of the clock
	judgeLimit = 20 * time.Second
)

// compete runs all epochs and judges each address.
func compete(t T, h *Harness, stores []store.Store, seed uint64) {
	t.Helper()
	for epoch := range epochs {
		c := newContest(t, h, stores, seed, epoch)
		// The clock moves only while nobody calls: onto lapses, then past the retention.
		for _, later := range []time.Duration{0, Lease, time.Second, Lease, Retention, Lease} {
			h.Advance(later)
			c.phase()
		}
		if !c.judge() {
			return
		}
	}
	(&run{T: t, h: h}).checkClean()
}

// entry is the commands of one batch on one address, and their outcomes. The stamps are
// taken from one counter: of two entries, one was over before the other began exactly if
// its stamps say so.
type entry struct {
	rival      int
	begin, end int64
	now        reservation.Time
	address    reservation.Address
	commands   []reservation.Command
	outcomes   []reservation.Outcome
}

// judge looks for an order of each address's entries. false = there is none.
func (c *contest) judge() bool {
	c.t.Helper()
	histories := make(map[reservation.Address][]entry)
	for _, entries := range c.entries {
		for _, e := range entries {
			histories[e.address] = append(histories[e.address], e)
		}
	}
	for address, history := range histories {
		if verdict := arrange(history); verdict != porcupine.Ok {
			c.t.Errorf("%v: no order of these calls fits what was answered (%v):\n%s", address, verdict, describe(history))
			return false
		}
	}
	return true
}

// arrange asks porcupine whether there is an order.
func arrange(history []entry) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(history))
	for i, e := range history {
		operations[i] = porcupine.Operation{ClientId: e.rival, Input: e, Output: e.outcomes, Call: e.begin, Return: e.end}
	}
	return porcupine.CheckOperationsTimeout(machine(), operations, judgeLimit)
}

// machine is the state machine as porcupine wants it: its state is the record.
func machine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return (*reservation.Record)(nil) },
		Step: func(state, input, output any) (bool, any) {
			e, rec := input.(entry), state.(*reservation.Record)
			for i, command := range e.commands {
				var outcome reservation.Outcome
				rec, outcome = reservation.Decide(e.now, rec, command)
				if !equalValues(outcome, output.([]reservation.Outcome)[i]) {
					return false, nil
				}
			}
			return true, rec
		},
		Equal: reflect.DeepEqual,
	}
}

// equalValues takes nil and empty for the same, as storing does.
func equalValues(a, b reservation.Outcome) bool {
	return reflect.DeepEqual(a, b) || gocmp.Equal(a, b, cmpopts.EquateEmpty())
}

// describe lists a history in the order in which the calls began.
func describe(history []entry) string {
	slices.SortFunc(history, func(a, b entry) int { return cmp.Compare(a.begin, b.begin) })
	var b strings.Builder
	for _, e := range history {
		e.describe(&b)
	}
	return b.String()
}

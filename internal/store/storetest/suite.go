package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
)

// T is what a case may ask of a test. It is smaller than testing.TB, so that the
// suite can watch itself fail on a broken store.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Case is one rule of the store interface.
type Case struct {
	// Rule says what must hold.
	Rule string
	// Needs names the strings of the harness that the case pulls.
	Needs Need
	// Faults: Check finds some at the end, because the case made them.
	Faults bool
	Run    func(*run)
}

// Need is a set of strings of a harness.
type Need uint8

// What a case may need.
const (
	NeedReopen Need = 1 << iota
	NeedHold
	NeedDamage
)

// missing tells why a harness can't run a case; empty = it can.
func (h *Harness) missing(needs Need) string {
	switch {
	case needs&NeedReopen != 0 && h.Reopen == nil:
		return "this store keeps nothing beyond Close"
	case needs&NeedHold != 0 && h.Hold == nil:
		return "no other process can write to this store"
	case needs&NeedDamage != 0 && h.Damage == nil:
		return "this store encodes nothing"
	}
	return ""
}

// Cases is the suite.
func Cases() []Case {
	var cases []Case
	for _, room := range [][]Case{
		plainCases(), batchCases(), addressCases(), timeCases(), tokenCases(), keptCases(),
		sweepCases(), rivalCases(), readCases(), faultCases(), bodyCases(), eraseCases(), auditCases(), listCases(),
	} {
		cases = append(cases, room...)
	}
	return cases
}

// Run runs every case on a fresh store.
func Run(t *testing.T, open Open) {
	for _, c := range Cases() {
		t.Run(c.Rule, func(t *testing.T) {
			h := open(t)
			if why := h.missing(c.Needs); why != "" {
				t.Skip("excluded: " + why)
			}
			c.run(t, h)
		})
	}
}

func (c Case) run(t T, h *Harness) {
	r := &run{T: t, h: h}
	c.Run(r)
	if !c.Faults {
		r.checkClean()
	}
}

// run is a case under way.
type run struct {
	T
	h *Harness
}

// deadline bounds every call of a case.
const deadline = 30 * time.Second

// apply runs commands as the engine does: what a rival holds is applied again.
func (r *run) apply(commands ...reservation.Command) []reservation.Outcome {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	outcomes := r.h.Store.Apply(ctx, commands)
	if len(outcomes) != len(commands) {
		r.Fatalf("%d commands got %d outcomes", len(commands), len(outcomes))
	}
	for i := range outcomes {
		for store.IsBusy(outcomes[i]) {
			select {
			case <-ctx.Done():
				r.Fatalf("command %d was busy for %v", i, deadline)
			case <-time.After(time.Millisecond):
			}
			outcomes[i] = r.h.Store.Apply(ctx, commands[i:i+1])[0]
		}
		if outcomes[i] == nil {
			r.Fatalf("command %d (%T) got no outcome", i, commands[i])
		}
	}
	return outcomes
}

func (r *run) one(command reservation.Command) reservation.Outcome {
	r.Helper()
	return r.apply(command)[0]
}

// must is the outcome as the kind it must be of.
func must[O reservation.Outcome](r *run, outcome reservation.Outcome) O {
	r.Helper()
	is, ok := outcome.(O)
	if !ok {
		r.Fatalf("got %T %v, want %T", outcome, outcome, is)
	}
	return is
}

func (r *run) refused(outcome reservation.Outcome, reason reservation.Reason) {
	r.Helper()
	if err := must[*reservation.Error](r, outcome); err.Reason != reason {
		r.Fatalf("refused with %v, want %v", err, reason)
	}
}

// get reads one stored record.
func (r *run) get(address reservation.Address) *reservation.Record {
	r.Helper()
	return r.read(store.Want(address)...).Found[0].Record
}

// read is Get.
func (r *run) read(wanted ...store.Wanted) store.Snapshot {
	r.Helper()
	snapshot, err := r.h.Store.Get(context.Background(), wanted)
	if err != nil {
		r.Fatalf("Get: %v", err)
	}
	return snapshot
}

func (r *run) sweep(limit int) store.Swept {
	r.Helper()
	swept, err := r.h.Store.Sweep(context.Background(), limit)
	if err != nil {
		r.Fatalf("Sweep: %v", err)
	}
	return swept
}

func (r *run) sweepAll() (deleted int) {
	r.Helper()
	for range 1000 {
		swept := r.sweep(100)
		deleted += swept.Deleted
		if !swept.More {
			return deleted
		}
	}
	r.Fatalf("the sweep does not end")
	return deleted
}

func (r *run) check() store.Report {
	r.Helper()
	report, err := r.h.Store.Check(context.Background())
	if err != nil {
		r.Fatalf("Check: %v", err)
	}
	return report
}

func (r *run) checkClean() {
	r.Helper()
	if report := r.check(); report.FaultCount != 0 {
		r.Errorf("Check found %d faults, the first: %v: %s", report.FaultCount, report.Faults[0].Address, report.Faults[0].Problem)
	}
}

func equal[V comparable](r *run, what string, got, want V) {
	r.Helper()
	if got != want {
		r.Fatalf("%s is %v, want %v", what, got, want)
	}
}

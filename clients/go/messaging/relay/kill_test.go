package relay_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
)

// survivor is a relay beside one that was killed: with the same claims.
func (h *house) survivor() relay.Config {
	c := h.settings()
	c.Claim, c.SendTimeout = childClaim, childSendTimeout
	return c
}

// Scenario 89, for the outbox.
func TestAnOwnerThatIsKilledHasAddedAllOrNothing(t *testing.T) {
	for step, want := range map[string]int{"before the insert": 0, "after the insert": 0, "after the commit": 10} {
		t.Run(step, func(t *testing.T) {
			h := newHouse(t, outbox.PerAggregate)
			owner := h.child("owner", step, "")
			h.says(owner, "reached")
			owner.kill()
			h.add(about("a", 99)) // waits until the killed one's transaction is over
			h.run(h.settings())
			h.drained()
			if got := h.broker.payloads(""); len(got) != want+1 {
				t.Errorf("sent: %v", got)
			}
		})
	}
}

// Scenario 79, too: what is marked is not sent again.
func TestARelayThatIsKilledAtAnyStepLosesNothingAndRepeatsUnderTheSameIdOnly(t *testing.T) {
	bothOrders(t, func(h *house) {
		steps := []string{
			"before the claim", "after the claim", "before publishing a0", "after publishing a0", "before publishing b3", "after publishing b3",
			"after publishing b4", "before the mark", "after the mark",
		}
		if h.config.Order == outbox.PerAggregate {
			steps = append(steps, "before the lock", "after the lock")
		}
		for _, step := range steps {
			h.Run(step, func(t *testing.T) {
				t.Parallel() // they mostly wait
				h := newHouse(t, h.config.Order)
				h.add(work()...)
				killed := h.child("relay", step, h.serve())
				h.says(killed, "reached")
				killed.kill()
				before := len(h.broker.all())
				h.run(h.survivor())
				h.drained()
				h.judge(step, before)
			})
		}
	})
}

// judge looks at what has arrived of work, before and after a kill.
func (h *house) judge(step string, before int) {
	h.Helper()
	ids := map[string]string{} // by payload
	var first []string
	for _, m := range h.broker.all() {
		p := string(m.Payload)
		if ids[p] == "" {
			first = append(first, p)
		}
		if id := ids[p]; id != "" && id != m.UUID {
			h.Errorf("%s arrived under two ids", p)
		}
		ids[p] = m.UUID
	}
	if len(ids) != 10 {
		h.Errorf("arrived: %v", first)
	}
	if n := len(h.broker.all()); step == "after the mark" && n != 10 || n > 10+before {
		h.Errorf("%d messages; %d before the kill", n, before)
	}
	for _, a := range []string{"a", "b"} {
		of := slices.DeleteFunc(slices.Clone(first), func(p string) bool { return p[:1] != a })
		if h.config.Order == outbox.PerAggregate && !slices.IsSorted(of) {
			h.Errorf("not in order: %v", of)
		}
	}
}

// Scenario 86.
func TestARelayThatStallsHoldsBackItsAggregateUntilItsClaimIsOverAndSendsNoMoreAfterIt(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.add(about("a", 0), about("a", 1), about("a", 2), about("a", 3), about("b", 10), about("b", 11))
	stalled := h.child("relay", "before publishing 2", h.serve())
	h.says(stalled, "reached")
	if err := stalled.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	claimed := time.Now()
	h.run(h.survivor())
	h.add(about("c", 100))
	h.until("another aggregate's is out", h.broker.took("100"))
	h.drained()
	if took := time.Since(claimed); took < childClaim/4 {
		t.Errorf("the claim held for %v", took)
	}
	if got := fmt.Sprint(h.broker.payloads("a")); got != "[0 1 0 1 2 3]" {
		t.Errorf("arrived: %s", got)
	}
	if err := stalled.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	stalled.tell("go on")
	h.says(stalled, "marked") // it has done with that batch
	h.until("its late copy is there", func() bool { return len(h.broker.payloads("a")) > 6 })
	stalled.kill()
	// The copy was on its way; it has begun nothing more, of this aggregate or the next.
	if got := fmt.Sprint(h.broker.payloads("a"), h.broker.payloads("b")); got != "[0 1 0 1 2 3 2] [10 11]" {
		t.Errorf("arrived: %s", got)
	}
}

func TestARelayThatStallsWithinItsClaimHoldsUpItsAggregatesOnlyAndNotForLong(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.add(about("a", 0), about("a", 1))
	// Before its COMMIT, with time enough for the other relay on a slow machine.
	stalled := h.child("relay", "after the claim", h.serve(), claimVariable+"=5s")
	h.says(stalled, "reached")
	h.add(about("b", 100))
	h.run(h.survivor())
	h.until("another aggregate's is out", h.broker.took("100"))
	h.drained()
	stalled.tell("go on")
	if got := fmt.Sprint(h.broker.payloads("")); got != "[100 0 1]" {
		t.Errorf("arrived: %s", got)
	}
}

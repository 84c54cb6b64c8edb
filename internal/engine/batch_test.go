package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func kinds(answers []Answer) (kinds []string) {
	for _, a := range answers {
		var refusal *reservation.Error
		if errors.As(a.Err, &refusal) {
			kinds = append(kinds, string(refusal.Reason))
			continue
		}
		kinds = append(kinds, fmt.Sprintf("%T", a.Outcome))
	}
	return kinds
}

func wantKinds(t *testing.T, answers []Answer, want ...string) {
	t.Helper()
	if got := fmt.Sprint(kinds(answers)); got != fmt.Sprint(want) {
		t.Errorf("answered %s, want %s", got, want)
	}
}

func TestOneCallersCommandsOnOneAddressRunInOrderAndOthersBesideThem(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 2})
	a, b := storetest.At("a"), storetest.At("b")
	answers := make(chan []Answer, 1)
	go func() {
		answers <- e.DoAll(t.Context(), []reservation.Command{
			storetest.Reserve(a, 1), storetest.Reserve(b, 1), storetest.Complete(a, 1, "done"), storetest.Reserve(a, 2),
			storetest.Complete(b, 7, ""), storetest.Lookup(b),
		})
	}()
	// What is about one address comes in one batch, whatever the two writers take.
	for commands := 0; commands < 6; {
		batch := <-g.entered
		of := make(map[reservation.Address]int)
		for _, c := range batch {
			of[c.Target()]++
		}
		if n := of[a]; n != 0 && n != 3 {
			t.Errorf("%d of the three commands on one address are in a batch", n)
		}
		commands += len(batch)
		g.pass <- struct{}{}
	}
	wantKinds(t, <-answers, "*reservation.Owned", "*reservation.Owned", "*reservation.Recorded", "*reservation.Replay", "STALE_TOKEN", "*reservation.Found")
	g.open()
	e.Close()
}

func TestACommandThatIsRefusedStopsNoOtherOfItsCaller(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	bad := storetest.Reserve(storetest.At("a b"), 1)
	wantKinds(t, e.DoAll(t.Context(), []reservation.Command{storetest.Reserve(storetest.At("k"), 1), bad, storetest.Complete(storetest.At("k"), 1, "")}),
		"*reservation.Owned", "KEY_INVALID", "*reservation.Recorded")
	if answers := e.DoAll(t.Context(), nil); len(answers) != 0 {
		t.Errorf("nothing is answered %v", answers)
	}
}

func TestWhatDoesNotFitIntoTheQueueIsRefusedAndTheRestIsDone(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	go func() { _, _ = e.Do(context.Background(), reserve("first", 1)) }()
	<-g.entered
	answers := make(chan []Answer, 1)
	go func() {
		commands := make([]reservation.Command, maxQueued+1) // one place is taken
		for i := range commands {
			commands[i] = reserve(fmt.Sprint("k", i), 1)
		}
		answers <- e.DoAll(context.Background(), commands)
	}()
	waitFor(t, func() bool { return e.queue.length() == maxQueued-1 })
	g.open()
	refused := 0
	for _, kind := range kinds(<-answers) {
		if kind == string(reservation.Overloaded) {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d are refused, want 2", refused)
	}
	e.Close()
}

func TestACallerOfManyWhoIsGoneIsGrantedNothing(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	go func() { _, _ = e.Do(context.Background(), reserve("first", 1)) }()
	<-g.entered
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []Answer, 1)
	go func() {
		answers <- e.DoAll(ctx, []reservation.Command{reserve("k", 1), reserve("k", 1), reserve("l", 1)})
	}()
	waitFor(t, func() bool { return e.queue.length() == 2 })
	cancel()
	for _, a := range <-answers {
		if !errors.Is(a.Err, context.Canceled) {
			t.Errorf("answered %T %v", a.Outcome, a.Err)
		}
	}
	g.open()
	e.Close()
	snapshot, err := g.Get(t.Context(), store.Want(storetest.At("k"), storetest.At("l")))
	if err != nil || snapshot.Found[0].Record != nil || snapshot.Found[1].Record != nil {
		t.Errorf("stored %v, %v", snapshot.Found, err)
	}
}

// rivalled is a store where a rival holds an address the first times it is asked for.
type rivalled struct {
	store.Store
	address reservation.Address
	times   atomic.Int64
}

func (s *rivalled) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	held := func(c reservation.Command) bool { return c.Target() == s.address }
	outcomes := make([]reservation.Outcome, len(commands))
	var free []reservation.Command
	holds := s.times.Add(-1) >= 0
	for _, c := range commands {
		if !holds || !held(c) {
			free = append(free, c)
		}
	}
	done := s.Store.Apply(ctx, free)
	for i, c := range commands {
		if holds && held(c) {
			outcomes[i] = store.Busy()
			continue
		}
		outcomes[i], done = done[0], done[1:]
	}
	return outcomes
}

func TestWhatARivalHoldsStaysInOrder(t *testing.T) {
	s := &rivalled{Store: storetest.OpenMem(t).Store, address: storetest.At("held")}
	s.times.Store(3)
	e := start(t, Options{Store: s})
	defer e.Close()
	a := s.address
	wantKinds(t, e.DoAll(t.Context(), []reservation.Command{
		storetest.Reserve(a, 1), storetest.Reserve(storetest.At("free"), 1), storetest.Complete(a, 1, ""), storetest.Reserve(a, 2),
	}), "*reservation.Owned", "*reservation.Owned", "*reservation.Recorded", "*reservation.Replay")
}

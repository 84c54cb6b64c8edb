package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func callOf(tenant string, n int) *call {
	address := reservation.Address{Tenant: tenant, Namespace: "n", Key: fmt.Sprint(n)}
	return newCall(context.Background(), &reservation.Lookup{Address: address}, make(alone))
}

// fill adds calls of a tenant until one is refused.
func fill(q *queue, tenant string) (n int) {
	for ; n <= 2*maxQueued && q.add(callOf(tenant, n)) == nil; n++ {
	}
	return n
}

func TestATenantThatFillsTheQueueKeepsNobodyOut(t *testing.T) {
	q := newQueue()
	if n := fill(q, "loud"); n != maxQueued {
		t.Errorf("alone it has %d places, want %d", n, maxQueued)
	}
	for _, tenant := range []string{"quiet", "silent"} {
		if n := fill(q, tenant); n != fewQueued {
			t.Errorf("%s finds %d places in a full queue, want %d", tenant, n, fewQueued)
		}
	}
	// While others wait it gets no more than half.
	q.answered(q.lanes.of["loud"].waiting[:maxQueued/2])
	if err := q.add(callOf("loud", 1)); err == nil || err.Reason != reservation.Overloaded || err.RetryAfter <= 0 {
		t.Errorf("beyond its half it is answered %v", err)
	}
	if n := fill(q, "quiet"); n < maxQueued/4 {
		t.Errorf("quiet finds only %d places beside it", n)
	}
	if all := q.pending; all > maxQueued+extraQueued {
		t.Errorf("%d calls are in the queue", all)
	}
}

func TestManyTenantsWithLittleAreBoundedTogether(t *testing.T) {
	q := newQueue()
	for i := range 10_000 {
		tenant := fmt.Sprint("t", i)
		for q.add(callOf(tenant, i)) == nil && q.lanes.of[tenant].pending < 10 {
		}
	}
	if q.pending != maxQueued+extraQueued {
		t.Errorf("%d calls are in the queue, want %d", q.pending, maxQueued+extraQueued)
	}
}

func TestBatchesTakeFromTenantsInTurn(t *testing.T) {
	q := newQueue()
	for i := range 5000 {
		if err := q.add(callOf("loud", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 {
		if err := q.add(callOf("quiet", i)); err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	batch := q.take()
	next := map[string]int{}
	for _, c := range batch {
		a := c.command.Target()
		count[a.Tenant]++
		if a.Key != fmt.Sprint(next[a.Tenant]) {
			t.Fatalf("%s's call %s comes in the place of %d", a.Tenant, a.Key, next[a.Tenant])
		}
		next[a.Tenant]++
	}
	if count["quiet"] != 300 || count["loud"] != store.MaxBatch-300 {
		t.Errorf("the first batch has %v", count)
	}
	rest := 0
	for q.length() > 0 {
		batch := q.take()
		rest += len(batch)
		q.answered(batch)
	}
	q.answered(batch)
	if rest != 5300-store.MaxBatch || q.pending != 0 || len(q.lanes.of) != 0 {
		t.Errorf("%d came later; %d are pending, %d lanes are left", rest, q.pending, len(q.lanes.of))
	}
}

// What nobody waits for any more costs the store nothing.
func TestACallWhoseTimeIsOverIsNotQueuedAndOneWhoseTimeEndsThereIsNotApplied(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	defer e.Close()
	late, cancel := context.WithDeadline(t.Context(), storetest.Start.Time())
	defer cancel()
	if _, err := e.Do(late, reserve("late", 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("too late on arrival: %v", err)
	}
	for _, a := range e.DoAll(late, []reservation.Command{reserve("late", 1), reserve("later", 1)}) {
		if !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Errorf("too late on arrival, in a batch: %v", a.Err)
		}
	}
	if n := e.queue.length(); n != 0 {
		t.Errorf("%d are queued", n)
	}
	blocked, answered := make(chan struct{}), make(chan error, 1)
	go func() {
		_, _ = e.Do(t.Context(), reserve("blocks", 1))
		close(blocked)
	}()
	<-g.entered
	ctx, giveUp := context.WithCancel(t.Context())
	go func() {
		_, err := e.Do(ctx, reserve("given-up", 1))
		answered <- err
	}()
	waitFor(t, func() bool { return e.queue.length() == 1 })
	giveUp()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	g.open()
	<-blocked
	if _, err := e.Do(t.Context(), &reservation.Lookup{Address: storetest.At("given-up")}); !refusedWith(err, reservation.NotFound) {
		t.Errorf("given up in the queue: %v", err)
	}
}

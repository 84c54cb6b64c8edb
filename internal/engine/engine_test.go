package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// gate is a store whose batches a test lets through one by one.
type gate struct {
	store.Store
	entered chan []reservation.Command // a batch has come
	pass    chan struct{}              // it may go on
	edit    func([]reservation.Outcome)
}

func (g *gate) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	g.entered <- commands
	<-g.pass
	outcomes := g.Store.Apply(ctx, commands)
	if g.edit != nil {
		g.edit(outcomes)
	}
	return outcomes
}

func newGate(t *testing.T) *gate {
	return &gate{Store: storetest.OpenMem(t).Store, entered: make(chan []reservation.Command), pass: make(chan struct{})}
}

// open opens the gate for all that follows.
func (g *gate) open() {
	close(g.pass)
	go func() {
		for range g.entered {
		}
	}()
}

func start(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func reserve(key string, caller int) *reservation.Reserve {
	c := storetest.Reserve(storetest.At(key), caller)
	c.Lease, c.Retention, c.OnLapse = 0, 0, 0
	return c
}

func TestWhatArrivesDuringABatchIsTheNextBatch(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	var calls sync.WaitGroup
	call := func(key string) {
		calls.Go(func() {
			if _, err := e.Do(t.Context(), reserve(key, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	call("first")
	if lone := <-g.entered; len(lone) != 1 {
		t.Fatalf("a lone call went with %d others", len(lone)-1)
	}
	for i := range 100 {
		call(fmt.Sprint("key-", i))
	}
	waitFor(t, func() bool { return e.queue.length() == 100 })
	g.pass <- struct{}{}
	if next := <-g.entered; len(next) != 100 {
		t.Errorf("the next batch has %d commands, want 100", len(next))
	}
	g.open()
	calls.Wait()
	e.Close()
}

func TestABatchIsBoundedInCommandsAndBytes(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	var calls sync.WaitGroup
	do := func(c reservation.Command) { calls.Go(func() { _, _ = e.Do(context.Background(), c) }) }
	do(reserve("first", 1))
	<-g.entered
	for i := range 8 {
		c := storetest.Complete(storetest.At(fmt.Sprint("big-", i)), 1, "")
		c.Result.Body = make([]byte, reservation.MaxBodyBytes)
		do(c)
	}
	waitFor(t, func() bool { return e.queue.length() == 8 })
	for i := range 1500 {
		do(reserve(fmt.Sprint("small-", i), 1))
	}
	waitFor(t, func() bool { return e.queue.length() == 1508 })
	for total := 0; total < 1508; {
		g.pass <- struct{}{}
		batch := <-g.entered
		total += len(batch)
		size := 0
		for _, c := range batch {
			size += sizeOf(c)
		}
		if len(batch) > store.MaxBatch || size > maxBatchBytes {
			t.Errorf("a batch of %d commands and %d bytes", len(batch), size)
		}
	}
	g.open()
	calls.Wait()
	e.Close()
}

func TestNothingIsGrantedToACallerWhoIsGone(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	go func() { _, _ = e.Do(context.Background(), reserve("first", 1)) }()
	<-g.entered
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := e.Do(ctx, reserve("abandoned", 1))
		gone <- err
	}()
	waitFor(t, func() bool { return e.queue.length() == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller hears %v", err)
	}
	g.open()
	if _, err := e.Do(t.Context(), &reservation.Lookup{Address: storetest.At("abandoned")}); !refusedWith(err, reservation.NotFound) {
		t.Errorf("looking the abandoned key up: %v", err)
	}
	e.Close()
}

func TestACallWhoseDeadlineHasPassedIsNotQueued(t *testing.T) {
	e := start(t, Options{Store: storetest.OpenMem(t).Store})
	defer e.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Do(ctx, reserve("k", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTheQueueIsBoundedAndSaysSo(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	var calls sync.WaitGroup
	calls.Go(func() { _, _ = e.Do(context.Background(), reserve("first", 1)) })
	<-g.entered
	for i := range maxQueued - 1 {
		calls.Go(func() { _, _ = e.Do(context.Background(), reserve(fmt.Sprint("k-", i), 1)) })
	}
	waitFor(t, func() bool { return e.queue.length() == maxQueued-1 })
	_, err := e.Do(t.Context(), reserve("one-too-many", 1))
	var refusal *reservation.Error
	if !errors.As(err, &refusal) || refusal.Reason != reservation.Overloaded || refusal.RetryAfter <= 0 {
		t.Errorf("got %v", err)
	}
	g.open()
	calls.Wait()
	e.Close()
}

func TestWhatARivalHoldsIsAppliedAgain(t *testing.T) {
	g := newGate(t)
	busy := 3
	g.edit = func(outcomes []reservation.Outcome) {
		if busy > 0 {
			busy--
			outcomes[0] = store.Busy()
		}
	}
	g.open()
	e := start(t, Options{Store: g, Writers: 1})
	outcome, err := e.Do(t.Context(), reserve("k", 1))
	if _, owned := outcome.(*reservation.Owned); !owned || busy != 0 {
		t.Errorf("got %T %v, still busy %d times", outcome, err, busy)
	}
	e.Close()
}

// stuck is a store at which a rival holds one address: first it says so, then whoever
// comes again waits.
type stuck struct {
	store.Store
	address reservation.Address
	once    sync.Once
	waits   chan struct{}
	release chan struct{}
}

func (s *stuck) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	for i, c := range commands {
		if c.Target() != s.address {
			continue
		}
		outcomes := s.Store.Apply(ctx, slices.Delete(slices.Clone(commands), i, i+1))
		first := false
		s.once.Do(func() { first = true })
		if first {
			return slices.Insert(outcomes, i, reservation.Outcome(store.Busy()))
		}
		close(s.waits)
		<-s.release
	}
	return s.Store.Apply(ctx, commands)
}

func TestAHeldAddressHoldsUpNoOther(t *testing.T) {
	s := &stuck{Store: storetest.OpenMem(t).Store, address: storetest.At("held"), waits: make(chan struct{}), release: make(chan struct{})}
	e := start(t, Options{Store: s, Writers: 1})
	answered := make(chan error, 1)
	go func() {
		_, err := e.Do(context.Background(), reserve("held", 1))
		answered <- err
	}()
	<-s.waits
	for i := range 100 {
		if _, err := e.Do(t.Context(), reserve(fmt.Sprint("free-", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	close(s.release)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	e.Close()
}

// alwaysHeld is a store at which rivals hold everything.
type alwaysHeld struct {
	store.Store
	largest atomic.Int64 // bytes of a batch
}

func (s *alwaysHeld) Apply(_ context.Context, commands []reservation.Command) []reservation.Outcome {
	outcomes := make([]reservation.Outcome, len(commands))
	size := 0
	for i, c := range commands {
		outcomes[i] = store.Busy()
		size += sizeOf(c)
	}
	s.largest.Store(max(s.largest.Load(), int64(size)))
	return outcomes
}

func TestThePatienceWithARivalEnds(t *testing.T) {
	e := start(t, Options{Store: &alwaysHeld{Store: storetest.OpenMem(t).Store}, HeldTimeout: 20 * time.Millisecond})
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := e.Do(ctx, reserve("held", 1)); !refusedWith(err, reservation.StoreUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestWhatRivalsHoldIsBoundedLikeAllElse(t *testing.T) {
	s := &alwaysHeld{Store: storetest.OpenMem(t).Store}
	e := start(t, Options{Store: s, Writers: 1})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	overloaded := make(chan struct{}, 400)
	for i := range 400 { // of 1 MiB each
		calls.Go(func() {
			c := storetest.Complete(storetest.At(fmt.Sprint("big-", i)), 1, "")
			c.Result.Body = make([]byte, reservation.MaxBodyBytes)
			if _, err := e.Do(ctx, c); refusedWith(err, reservation.Overloaded) {
				overloaded <- struct{}{}
			}
		})
	}
	<-overloaded
	cancel()
	calls.Wait()
	e.Close()
	if s.largest.Load() > maxBatchBytes {
		t.Errorf("a batch of %d bytes", s.largest.Load())
	}
}

func TestDrainingRefusesNewCallsAndAnswersThoseUnderWay(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	answered := make(chan error, 1)
	go func() {
		_, err := e.Do(context.Background(), reserve("under-way", 1))
		answered <- err
	}()
	<-g.entered
	drained := make(chan error, 1)
	go func() { drained <- e.Drain(context.Background()) }()
	waitFor(t, func() bool { return e.queue.isDraining() })
	if _, err := e.Do(t.Context(), reserve("new", 1)); !refusedWith(err, reservation.Draining) {
		t.Errorf("a new call: %v", err)
	}
	select {
	case <-drained:
		t.Error("drained while a call was under way")
	default:
	}
	g.open()
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := <-drained; err != nil {
		t.Errorf("draining: %v", err)
	}
	e.Close()
}

func TestWhatACallDoesNotSayComesFromItsNamespacesPolicy(t *testing.T) {
	mails := DefaultPolicy()
	mails.Lease, mails.Retention, mails.OnLapse, mails.Attempts, mails.MaxLease = time.Minute, time.Hour, reservation.Rerun, 2, 2*time.Minute
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store, Policies: Policies{Namespaces: map[Scope]Policy{{"acme", "mails"}: mails}}})
	defer e.Close()
	for namespace, want := range map[string]Policy{"mails": mails, "payments": DefaultPolicy()} {
		c := reserve("k", 1)
		c.Namespace, c.Attempts, c.LeaseCap = namespace, 0, 0
		outcome, err := e.Do(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if owned := outcome.(*reservation.Owned); owned.LeaseRemaining != want.Lease {
			t.Errorf("%s: the lease is %v, want %v", namespace, owned.LeaseRemaining, want.Lease)
		}
		snapshot, err := h.Store.Get(t.Context(), store.Want(c.Address))
		if err != nil {
			t.Fatal(err)
		}
		if r := snapshot.Found[0].Record; r.Retention != want.Retention || r.OnLapse != want.OnLapse || r.AttemptsAllowed != want.Attempts {
			t.Errorf("%s: stored %+v", namespace, r)
		}
		long := reserve("long", 1)
		long.Namespace, long.Lease = namespace, 3*time.Minute
		if _, err := e.Do(t.Context(), long); refusedWith(err, reservation.DurationOutOfRange) != (namespace == "mails") {
			t.Errorf("%s: a lease of 3 min: %v", namespace, err)
		}
	}
}

func TestAWrongPolicyIsRefusedWithEverythingThatIsWrong(t *testing.T) {
	_, err := New(Options{Policies: Policies{Namespaces: map[Scope]Policy{{"acme", "mails"}: {}}}})
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, word := range []string{"acme", "mails", "lease", "retention", "attempts", "hold"} {
		if !contains(err.Error(), word) {
			t.Errorf("%q is not named in: %v", word, err)
		}
	}
}

func TestBadInputNeverReachesTheStore(t *testing.T) {
	g := newGate(t) // stays shut
	e := start(t, Options{Store: g, Writers: 1})
	defer e.Close()
	bad := reserve("", 1)
	if _, err := e.Do(t.Context(), bad); !refusedWith(err, reservation.KeyInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestRetryHintsAreSpread(t *testing.T) {
	for jitter, want := range map[float64]time.Duration{0: time.Second, 1: 750 * time.Millisecond} {
		e := start(t, Options{Store: storetest.OpenMem(t).Store, Jitter: func() float64 { return jitter }})
		if _, err := e.Do(t.Context(), reserve("k", 1)); err != nil {
			t.Fatal(err)
		}
		outcome, err := e.Do(t.Context(), reserve("k", 2))
		if err != nil {
			t.Fatal(err)
		}
		if hint := outcome.(*reservation.InProgress).RetryAfter; hint != want {
			t.Errorf("with jitter %v the hint is %v, want %v", jitter, hint, want)
		}
		e.Close()
	}
}

// A race: one owner a round, with callers going through queue and batches.
func TestOfManyEqualCallersExactlyOneIsGranted(t *testing.T) {
	e := start(t, Options{Store: storetest.OpenMem(t).Store})
	defer e.Close()
	for round := range 100 {
		var mu sync.Mutex
		var callers sync.WaitGroup
		grants := 0
		for i := range 100 {
			callers.Go(func() {
				outcome, err := e.Do(context.Background(), reserve(fmt.Sprint("round-", round), i))
				if err != nil {
					t.Error(err)
				}
				if _, owned := outcome.(*reservation.Owned); owned {
					mu.Lock()
					grants++
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if grants != 1 {
			t.Fatalf("round %d: %d grants", round, grants)
		}
	}
}

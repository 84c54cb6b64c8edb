package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

// heard is what one waiting caller was answered.
type heard struct {
	caller  int
	outcome reservation.Outcome
	err     error
}

// callers wait at an engine.
type callers struct {
	t     *testing.T
	heard chan heard
	n     int
}

func newCallers(t *testing.T) *callers { return &callers{t: t, heard: make(chan heard, 30_000)} }

// wait has callers wait and returns once all of them do.
func (c *callers) wait(ctx context.Context, e *Engine, commands ...reservation.Command) {
	c.t.Helper()
	before := e.Waiting()
	for _, command := range commands {
		c.n++
		caller := c.n
		go func() {
			outcome, err := e.Await(ctx, command, reservation.MaxWait)
			c.heard <- heard{caller, outcome, err}
		}()
	}
	waitFor(c.t, func() bool { return e.Waiting() == before+len(commands) })
}

// next is the next answer.
func (c *callers) next() heard {
	c.t.Helper()
	select {
	case h := <-c.heard:
		return h
	case <-time.After(30 * time.Second):
		c.t.Fatal("nobody is answered")
		return heard{}
	}
}

// all collects n answers: one that owns, and the others.
func (c *callers) all(n int) (owners []heard, others []heard) {
	c.t.Helper()
	for range n {
		h := c.next()
		if _, owned := h.outcome.(*reservation.Owned); owned {
			owners = append(owners, h)
			continue
		}
		others = append(others, h)
	}
	return owners, others
}

func (c *callers) silent() {
	c.t.Helper()
	select {
	case h := <-c.heard:
		c.t.Fatalf("caller %d was answered %T %v", h.caller, h.outcome, h.err)
	default:
	}
}

func many(n int, command func(caller int) reservation.Command) (commands []reservation.Command) {
	for i := range n {
		commands = append(commands, command(i))
	}
	return commands
}

func reserveAs(key string) func(int) reservation.Command {
	return func(i int) reservation.Command { return storetest.Reserve(storetest.At(key), 100+i) }
}

func do(t *testing.T, e *Engine, command reservation.Command) reservation.Outcome {
	t.Helper()
	outcome, err := e.Do(t.Context(), command)
	if err != nil {
		t.Fatalf("%T: %v", command, err)
	}
	return outcome
}

// twoDaemons are two engines on one store.
func twoDaemons(t *testing.T) (*storetest.Harness, *Engine, *Engine) {
	h := storetest.OpenMem(t)
	one, other := start(t, Options{Store: h.Store}), start(t, Options{Store: h.Store})
	t.Cleanup(one.Close)
	t.Cleanup(other.Close)
	return h, one, other
}

func TestWhoWaitsHearsTheAnswerWhicheverDaemonItWasGiven(t *testing.T) {
	_, one, other := twoDaemons(t)
	a := storetest.At("k")
	do(t, one, storetest.Reserve(a, 1))
	c := newCallers(t)
	c.wait(t.Context(), one, many(50, reserveAs("k"))...)
	c.wait(t.Context(), other, many(50, reserveAs("k"))...)
	c.wait(t.Context(), other, &reservation.Lookup{Address: a})
	do(t, one, storetest.Extend(a, 1))
	c.silent()
	do(t, one, storetest.Complete(a, 1, "done"))
	for range 101 {
		switch h := c.next(); o := h.outcome.(type) {
		case *reservation.Replay:
			if !strings.HasSuffix(string(o.Result.Body), "done") {
				t.Errorf("caller %d hears %q", h.caller, o.Result.Body)
			}
		case *reservation.Found:
			if o.Shown != reservation.Succeeded || !strings.HasSuffix(string(o.Record.Result.Body), "done") {
				t.Errorf("looking up shows %v", o.Shown)
			}
		default:
			t.Errorf("caller %d hears %T %v", h.caller, h.outcome, h.err)
		}
	}
	if one.Waiting() != 0 || other.Waiting() != 0 {
		t.Errorf("%d and %d still wait", one.Waiting(), other.Waiting())
	}
}

func TestOfManyWhoWaitOneIsGrantedTheNextAttempt(t *testing.T) {
	_, one, other := twoDaemons(t)
	a := storetest.At("k")
	do(t, one, storetest.Reserve(a, 1))
	c := newCallers(t)
	c.wait(t.Context(), one, many(40, reserveAs("k"))...)
	c.wait(t.Context(), other, many(40, func(i int) reservation.Command { return storetest.Reserve(a, 500+i) })...)
	// Each owner in turn fails; the last one completes.
	do(t, one, storetest.Fail(a, 1, reservation.ToldRetryable, "not yet"))
	for attempt := int32(2); attempt <= 6; attempt++ {
		h := c.next()
		owned, is := h.outcome.(*reservation.Owned)
		if !is || owned.Attempt != attempt {
			t.Fatalf("caller %d hears %T %+v, %v; want attempt %d", h.caller, h.outcome, h.outcome, h.err, attempt)
		}
		c.silent()
		token := 100 + h.caller - 1
		if h.caller > 40 {
			token = 500 + h.caller - 41
		}
		if attempt < 6 {
			do(t, other, storetest.Fail(a, token, reservation.ToldRetryable, "not yet"))
			continue
		}
		do(t, other, storetest.Complete(a, token, "done"))
	}
	owners, others := c.all(75)
	if len(owners) > 0 {
		t.Errorf("caller %d owns it as well", owners[0].caller)
	}
	for _, h := range others {
		if replay, is := h.outcome.(*reservation.Replay); !is || replay.Attempt != 6 {
			t.Errorf("caller %d hears %T %v", h.caller, h.outcome, h.err)
		}
	}
}

func TestWhoCameFirstIsGrantedFirst(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1))
	c := newCallers(t)
	for i := range 5 {
		c.wait(t.Context(), e, reserveAs("k")(i))
	}
	do(t, e, storetest.Fail(a, 1, reservation.ToldRetryable, ""))
	for want := 1; want <= 5; want++ {
		if h := c.next(); h.caller != want {
			t.Fatalf("caller %d was granted before %d", h.caller, want)
		}
		do(t, e, storetest.Fail(a, 100+want-1, reservation.ToldRetryable, ""))
	}
}

func TestALapseEndsTheWaiting(t *testing.T) {
	t.Run("under HOLD it is unresolved for all", func(t *testing.T) {
		h, one, other := twoDaemons(t)
		a := storetest.At("k")
		do(t, one, storetest.Reserve(a, 1))
		do(t, one, func() reservation.Command {
			extend := storetest.Extend(a, 1)
			extend.Checkpoint, extend.CheckpointSequence = []byte("half"), 1
			return extend
		}())
		c := newCallers(t)
		c.wait(t.Context(), one, many(20, reserveAs("k"))...)
		c.wait(t.Context(), other, &reservation.Lookup{Address: a})
		h.Advance(storetest.Lease - 1)
		c.silent()
		h.Advance(1)
		for range 21 {
			switch h := c.next(); o := h.outcome.(type) {
			case *reservation.Unresolved:
				if o.Attempt != 1 || string(o.Checkpoint) != "half" {
					t.Errorf("caller %d hears %+v", h.caller, o)
				}
			case *reservation.Found:
				if o.Shown != reservation.Unknown {
					t.Errorf("looking up shows %v", o.Shown)
				}
			default:
				t.Errorf("caller %d hears %T %v", h.caller, h.outcome, h.err)
			}
		}
	})
	t.Run("under RERUN one takes over", func(t *testing.T) {
		h, one, other := twoDaemons(t)
		a := storetest.At("k")
		do(t, one, storetest.Reserve(a, 1, storetest.Rerunnable))
		c := newCallers(t)
		c.wait(t.Context(), one, many(20, reserveAs("k"))...)
		c.wait(t.Context(), other, many(20, func(i int) reservation.Command { return storetest.Reserve(a, 500+i) })...)
		h.Advance(storetest.Lease)
		first := c.next()
		if owned, is := first.outcome.(*reservation.Owned); !is || !owned.Takeover || owned.Attempt != 2 {
			t.Fatalf("caller %d hears %T %v", first.caller, first.outcome, first.err)
		}
		c.silent()
		h.Advance(storetest.Lease)
		if second, is := c.next().outcome.(*reservation.Owned); !is || second.Attempt != 3 {
			t.Error("the second lapse is not taken over")
		}
	})
}

func TestWaitingEndsWithItsTimeOrBeforeItsCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := storetest.OpenMem(t)
		e := start(t, Options{Store: h.Store})
		defer e.Close()
		a := storetest.At("k")
		do(t, e, storetest.Reserve(a, 1))
		outcome, err := e.Await(t.Context(), storetest.Reserve(a, 2), time.Minute/2)
		if held, is := outcome.(*reservation.InProgress); !is || held.Owner != "caller-1" || held.RetryAfter <= 0 {
			t.Errorf("after its wait a caller hears %T %v", outcome, err)
		}
		outcome, err = e.Await(t.Context(), &reservation.Lookup{Address: a}, time.Minute/2)
		if found, is := outcome.(*reservation.Found); !is || found.Shown != reservation.Processing {
			t.Errorf("after its wait a look-up hears %T %v", outcome, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		outcome, err = e.Await(ctx, storetest.Reserve(a, 3), reservation.MaxWait)
		if _, is := outcome.(*reservation.InProgress); !is || ctx.Err() != nil {
			t.Errorf("a caller with a deadline hears %T %v, deadline passed: %v", outcome, err, ctx.Err())
		}
		_, err = e.Await(t.Context(), storetest.Reserve(a, 2), reservation.MaxWait+1)
		if !refusedWith(err, reservation.DurationOutOfRange) {
			t.Errorf("a wait beyond the limit: %v", err)
		}
	})
}

func TestWhatIsDecidedIsAnsweredAtOnceWhateverTheWait(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	if _, err := e.Await(t.Context(), &reservation.Lookup{Address: storetest.At("none")}, reservation.MaxWait); !refusedWith(err, reservation.NotFound) {
		t.Errorf("a missing reservation: %v", err)
	}
	if outcome, err := e.Await(t.Context(), storetest.Reserve(storetest.At("k"), 1), reservation.MaxWait); err != nil {
		t.Errorf("a free key: %T %v", outcome, err)
	}
	other := storetest.Reserve(storetest.At("k"), 2)
	other.Fingerprint = storetest.Print(2)
	if _, err := e.Await(t.Context(), other, reservation.MaxWait); !refusedWith(err, reservation.FingerprintMismatch) {
		t.Errorf("misuse is told to wait: %v", err)
	}
}

func TestAWaiterWhoIsGoneIsNeverGranted(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	a := storetest.At("k")
	// step lets the next batch through.
	step := func() {
		<-g.entered
		g.pass <- struct{}{}
	}
	asks := func(ctx context.Context, caller int, wait time.Duration, answers chan heard) {
		go func() {
			outcome, err := e.Await(ctx, storetest.Reserve(a, caller), wait)
			answers <- heard{caller, outcome, err}
		}()
	}
	first := make(chan heard, 1)
	asks(t.Context(), 1, 0, first)
	step()
	<-first
	ctx, leave := context.WithCancel(t.Context())
	gone, stays := make(chan heard, 1), make(chan heard, 1)
	asks(ctx, 2, reservation.MaxWait, gone)
	step()
	waitFor(t, func() bool { return e.Waiting() == 1 })
	asks(t.Context(), 3, reservation.MaxWait, stays)
	step()
	waitFor(t, func() bool { return e.Waiting() == 2 })

	// A batch is under way when it becomes the second caller's turn: it asks, and leaves
	// before its question is looked at.
	blocker := make(chan struct{})
	go func() { defer close(blocker); _, _ = e.Do(t.Context(), reserve("another", 1)) }()
	<-g.entered
	other := start(t, Options{Store: g.Store})
	defer other.Close()
	do(t, other, storetest.Fail(a, 1, reservation.ToldRetryable, ""))
	waitFor(t, func() bool { return e.queue.length() == 1 })
	leave()
	if h := <-gone; !errors.Is(h.err, context.Canceled) {
		t.Errorf("who left hears %T %v", h.outcome, h.err)
	}
	g.pass <- struct{}{}
	g.open()
	<-blocker
	h := <-stays
	if owned, is := h.outcome.(*reservation.Owned); !is || owned.Attempt != 2 {
		t.Errorf("the next one hears %T %+v %v: it should own attempt 2", h.outcome, h.outcome, h.err)
	}
	e.Close()
}

func TestDrainingEndsAllWaitingAtOnceWithSpreadHints(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	do(t, e, storetest.Reserve(storetest.At("k"), 1))
	c := newCallers(t)
	c.wait(t.Context(), e, many(200, reserveAs("k"))...)
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	hints := make(map[time.Duration]bool)
	for range 200 {
		h := c.next()
		var refusal *reservation.Error
		if !errors.As(h.err, &refusal) || refusal.Reason != reservation.Draining || refusal.RetryAfter <= 0 {
			t.Fatalf("caller %d hears %T %v", h.caller, h.outcome, h.err)
		}
		hints[refusal.RetryAfter] = true
	}
	if len(hints) < 100 {
		t.Errorf("200 callers are told to come back at %d times", len(hints))
	}
	e.Close()
}

func TestTheNumberOfWaitersIsBoundedAndSaysSo(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	do(t, e, storetest.Reserve(storetest.At("k"), 1))
	ctx, cancel := context.WithCancel(t.Context())
	c := newCallers(t)
	for range maxWaiters / 5000 {
		c.wait(ctx, e, many(5000, reserveAs("k"))...)
	}
	_, err := e.Await(t.Context(), storetest.Reserve(storetest.At("k"), 2), reservation.MaxWait)
	var refusal *reservation.Error
	if !errors.As(err, &refusal) || refusal.Reason != reservation.Overloaded || refusal.RetryAfter <= 0 {
		t.Errorf("one too many hears %v", err)
	}
	cancel()
	for range maxWaiters {
		c.next()
	}
	if e.Waiting() != 0 || len(e.waiters.rooms) != 0 {
		t.Errorf("%d wait in %d rooms after all have left", e.Waiting(), len(e.waiters.rooms))
	}
	e.Close()
}

func TestWaitersOfOneKeyCostTheStoreOneReadTogetherAndOfManyKeysFewReads(t *testing.T) {
	for _, keys := range []int{1, 500} {
		t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
			h := storetest.OpenMem(t)
			var mu sync.Mutex
			var reads, addresses int
			e := start(t, Options{Store: h.Store, Hooks: Hooks{Polled: func(n int, _ time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				reads++
				addresses += n
			}}})
			defer e.Close()
			for i := range keys {
				do(t, e, storetest.Reserve(storetest.At(fmt.Sprint("k-", i)), 1))
			}
			c := newCallers(t)
			c.wait(t.Context(), e, many(500, func(i int) reservation.Command {
				return storetest.Reserve(storetest.At(fmt.Sprint("k-", i%keys)), 100+i)
			})...)
			mu.Lock()
			reads, addresses = 0, 0
			mu.Unlock()
			waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return reads >= 20 })
			mu.Lock()
			defer mu.Unlock()
			if most := reads * keys; addresses > most {
				t.Errorf("%d reads were about %d addresses, at most %d are needed", reads, addresses, most)
			}
			if keys > 1 && addresses < reads*keys/4 {
				t.Errorf("%d reads were about %d addresses: they are not batched", reads, addresses)
			}
		})
	}
}

func TestReadsForWaitersSlowDownWithAgeAndNumber(t *testing.T) {
	for _, c := range []struct {
		age   time.Duration
		rooms int
		want  time.Duration
	}{
		{0, 1, minPoll},
		{time.Second, 1, time.Second / 16},
		{time.Minute, 1, maxPoll},
		{time.Minute, pollsPerSecond / 2, time.Second / 2},
		{0, pollsPerSecond / 2, time.Second / 2},
		{time.Minute, maxWaiters, maxWaiters * time.Second / pollsPerSecond},
	} {
		if got := pause(c.age, c.rooms); got != c.want {
			t.Errorf("after %v, of %d rooms, one rests %v, want %v", c.age, c.rooms, got, c.want)
		}
	}
}

// blindStore can't be read while it is told so.
type blindStore struct {
	store.Store
	mu    sync.Mutex
	blind bool
	hold  chan struct{} // a read that has seen an answer waits for it; nil = none does
	saw   chan struct{}
}

func (s *blindStore) Get(ctx context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	s.mu.Lock()
	blind, hold := s.blind, s.hold
	s.mu.Unlock()
	if blind {
		return store.Snapshot{}, store.Unavailable()
	}
	snapshot, err := s.Store.Get(ctx, wanted)
	if hold != nil && len(snapshot.Found) > 0 && snapshot.Found[0].Record.State.Finished() {
		s.saw <- struct{}{}
		<-hold
	}
	return snapshot, err
}

func (s *blindStore) set(blind bool, hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blind, s.hold = blind, hold
}

func TestAShortOutageIsWaitedThroughALongOneIsTold(t *testing.T) {
	s := &blindStore{Store: storetest.OpenMem(t).Store}
	e := start(t, Options{Store: s})
	defer e.Close()
	e.waiters.patience = 400 * time.Millisecond
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1))
	c := newCallers(t)
	c.wait(t.Context(), e, reserveAs("k")(1))
	s.set(true, nil)
	waitFor(t, func() bool { e.waiters.mu.Lock(); defer e.waiters.mu.Unlock(); return !e.waiters.blindSince.IsZero() })
	s.set(false, nil)
	do(t, e, storetest.Complete(a, 1, "done"))
	if h := c.next(); h.err != nil {
		t.Errorf("after a short outage a caller hears %v", h.err)
	}
	b := storetest.At("other")
	do(t, e, storetest.Reserve(b, 1))
	c.wait(t.Context(), e, many(10, reserveAs("other"))...)
	s.set(true, nil)
	for range 10 {
		if h := c.next(); !refusedWith(h.err, reservation.StoreUnavailable) {
			t.Errorf("in a long outage caller %d hears %T %v", h.caller, h.outcome, h.err)
		}
	}
}

func TestNobodyIsAnsweredByAReadThatIsOlderThanItsCall(t *testing.T) {
	h := storetest.OpenMem(t)
	s := &blindStore{Store: h.Store, saw: make(chan struct{})}
	e := start(t, Options{Store: s})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1))
	c := newCallers(t)
	c.wait(t.Context(), e, reserveAs("k")(0))
	// A read sees the first answer, and is slow to tell.
	hold := make(chan struct{})
	s.set(false, hold)
	do(t, e, storetest.Complete(a, 1, "first"))
	<-s.saw
	s.set(false, nil)
	// Meanwhile the answer is forgotten, and the key is another operation's.
	h.Advance(storetest.Retention)
	do(t, e, storetest.Reserve(a, 2))
	c.wait(t.Context(), e, reserveAs("k")(1))
	close(hold)
	if first := c.next(); first.caller != 1 {
		t.Fatalf("caller %d is answered %+v by a read from before it came", first.caller, first.outcome)
	}
	do(t, e, storetest.Complete(a, 2, "second"))
	second := c.next()
	if replay, is := second.outcome.(*reservation.Replay); !is || !strings.HasSuffix(string(replay.Result.Body), "second") {
		t.Errorf("the second caller hears %T %v", second.outcome, second.err)
	}
}

// large is caller 1's Complete with the largest body.
func large(a reservation.Address) *reservation.Complete {
	c := storetest.Complete(a, 1, "")
	c.Result.Body = make([]byte, reservation.MaxBodyBytes)
	return c
}

func TestLargeAnswersGoOutBitByBitAndAllGetThem(t *testing.T) {
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1))
	c := newCallers(t)
	const callers = 160
	c.wait(t.Context(), e, many(callers, reserveAs("k"))...)
	do(t, e, large(a))
	waitFor(t, func() bool { return e.Waiting() < callers })
	if left := e.Waiting(); left < callers-atOnceBytes>>20-2 {
		t.Errorf("%d of %d answers of 1 MiB went out at once", callers-left, callers)
	}
	for range callers {
		if replay, is := c.next().outcome.(*reservation.Replay); !is || len(replay.Result.Body) != reservation.MaxBodyBytes {
			t.Error("an answer is not whole")
		}
	}
}

func TestAnAnswerOnItsWayIsTheLastWordWhateverBecomesOfTheRecord(t *testing.T) {
	h, one, other := twoDaemons(t)
	a := storetest.At("k")
	do(t, one, storetest.Reserve(a, 1))
	c := newCallers(t)
	const callers = 300
	c.wait(t.Context(), other, many(callers, reserveAs("k"))...)
	do(t, one, large(a))
	c.next()
	// The record is forgotten, and the key another operation's, while most answers are
	// on their way.
	h.Advance(storetest.Retention)
	do(t, one, storetest.Reserve(a, 2))
	do(t, one, storetest.Complete(a, 2, "second"))
	for range callers - 1 {
		if h := c.next(); h.err != nil || len(h.outcome.(*reservation.Replay).Result.Body) != reservation.MaxBodyBytes {
			t.Fatalf("caller %d hears %T %v", h.caller, h.outcome, h.err)
		}
	}
}

func TestWhoseTimeIsOverBeforeALargeAnswerArrivesIsToldToAskAgain(t *testing.T) {
	w := newWaiters(storetest.OpenMem(t).Store, nil, nil)
	defer func() { w.drain(); w.close() }()
	me := &waiter{command: reserveAs("k")(1), roused: make(chan struct{}, 1)}
	if err := w.join(me); err != nil {
		t.Fatal(err)
	}
	defer w.leave(me)
	for size, want := range map[int]string{10: "*reservation.Replay", reservation.MaxBodyBytes: "*reservation.Error"} {
		me.answer = &reservation.Replay{State: reservation.Succeeded, Result: &reservation.Result{Body: make([]byte, size)}}
		if outcome, err := w.answerAtTheEnd(t.Context(), me); err != nil || fmt.Sprintf("%T", outcome) != want {
			t.Errorf("of an answer of %d bytes it hears %T %v", size, outcome, err)
		}
	}
}

// busyStore is one where a rival holds everything while it is told so.
type busyStore struct {
	store.Store
	busy  atomic.Bool
	asked atomic.Int64
}

func (s *busyStore) Apply(ctx context.Context, commands []reservation.Command) []reservation.Outcome {
	if !s.busy.Load() {
		return s.Store.Apply(ctx, commands)
	}
	s.asked.Add(int64(len(commands)))
	outcomes := make([]reservation.Outcome, len(commands))
	for i := range outcomes {
		outcomes[i] = store.Busy()
	}
	return outcomes
}

func TestAWaiterWhoseTurnItIsWaitsForARivalNoLongerThanItsTime(t *testing.T) {
	h := storetest.OpenMem(t)
	s := &busyStore{Store: h.Store}
	e := start(t, Options{Store: s})
	defer e.Close()
	a := storetest.At("k")
	do(t, e, storetest.Reserve(a, 1, storetest.Rerunnable))
	answer := make(chan heard, 1)
	go func() {
		outcome, err := e.Await(t.Context(), storetest.Reserve(a, 2), time.Second)
		answer <- heard{2, outcome, err}
	}()
	waitFor(t, func() bool { return e.Waiting() == 1 })
	s.busy.Store(true)
	h.Advance(storetest.Lease)
	waitFor(t, func() bool { return s.asked.Load() > 0 })
	if heard := <-answer; heard.err != nil || heard.outcome.(*reservation.InProgress).Owner != "caller-1" {
		t.Errorf("it hears %T %v", heard.outcome, heard.err)
	}
	s.busy.Store(false)
	if found := do(t, e, &reservation.Lookup{Address: a}).(*reservation.Found); found.Record.Attempt != 1 {
		t.Errorf("attempt %d was granted to one who heard that it is in progress", found.Record.Attempt)
	}
}

func TestOfCallersThatComeWaitAndGoEachAttemptHasOneOwner(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	_, one, other := twoDaemons(t)
	engines := []*Engine{one, other}
	a := storetest.At("k")
	var mu sync.Mutex
	granted := make(map[int32]int)
	var calls sync.WaitGroup
	for i := range 300 {
		calls.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if rng.IntN(4) == 0 {
				stop := time.AfterFunc(time.Duration(rng.IntN(200))*time.Millisecond, cancel)
				defer stop.Stop()
			}
			command := storetest.Reserve(a, 1000+i, storetest.AttemptsOf(100))
			outcome, err := engines[i%2].Await(ctx, command, time.Duration(rng.IntN(2000))*time.Millisecond)
			owned, is := outcome.(*reservation.Owned)
			if err != nil || !is {
				return
			}
			mu.Lock()
			granted[owned.Attempt]++
			mu.Unlock()
			if owned.Attempt > 20 && rng.IntN(20) == 0 {
				_, _ = engines[i%2].Do(t.Context(), storetest.Complete(a, 1000+i, "done"))
				return
			}
			_, _ = engines[(i+1)%2].Do(t.Context(), storetest.Fail(a, 1000+i, reservation.ToldRetryable, ""))
		})
	}
	calls.Wait()
	if len(granted) < 2 {
		t.Errorf("only %d attempts were granted: the test proves nothing", len(granted))
	}
	for attempt, owners := range granted {
		if owners > 1 {
			t.Errorf("attempt %d was granted to %d callers", attempt, owners)
		}
	}
	if one.Waiting()+other.Waiting() != 0 {
		t.Errorf("%d and %d wait still", one.Waiting(), other.Waiting())
	}
}

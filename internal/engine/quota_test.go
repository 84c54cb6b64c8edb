package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func TestARateIsABucketThatFillsWithTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	q := newQuota(Scope{Tenant: "acme"}, Quotas{Rate: 10, Burst: 20}, now)
	taken := func() (n int) {
		for ; n <= 1000 && q.take(now) == 0; n++ {
		}
		return n
	}
	if n := taken(); n != 20 {
		t.Errorf("%d at once, want the burst", n)
	}
	if wait := q.take(now); wait != 100*time.Millisecond {
		t.Errorf("the hint is %v, want the time until one is there again", wait)
	}
	now = now.Add(500 * time.Millisecond)
	if n := taken(); n != 5 {
		t.Errorf("%d after half a second, want 5", n)
	}
	now = now.Add(time.Hour)
	if n := taken(); n != 20 {
		t.Errorf("%d after an hour, want the burst", n)
	}
	now = now.Add(-time.Minute)
	if n := taken(); n != 0 {
		t.Errorf("%d after the clock was set back", n)
	}
}

// limited is an engine with quotas on the tenant and the namespace of storetest.At.
func limited(t *testing.T, h *storetest.Harness, tenant, namespace Quotas) *Engine {
	t.Helper()
	p := Policies{
		Tenants: map[string]TenantPolicy{"acme": {Policy: DefaultPolicy()}, "rival": {Policy: DefaultPolicy()}},
		Quotas:  map[Scope]Quotas{{Tenant: "acme"}: tenant, {Tenant: "acme", Namespace: "payments"}: namespace},
	}
	e := start(t, Options{Store: h.Store, Policies: p, Jitter: func() float64 { return 0.5 }})
	t.Cleanup(e.Close)
	return e
}

const slowly = 1e-6 // a second: what a bucket gains during a test is nothing

func TestOverTheRateOnlyReservesAreRefusedAndOnlyThoseOfTheTenant(t *testing.T) {
	e := limited(t, storetest.OpenMem(t), Quotas{Rate: slowly, Burst: 2}, Quotas{})
	do := func(c reservation.Command) error {
		_, err := e.Do(t.Context(), c)
		return err
	}
	if err := errors.Join(do(reserve("a", 1)), do(reserve("b", 1))); err != nil {
		t.Fatal(err)
	}
	err := do(reserve("c", 1))
	var refusal *reservation.Error
	if !errors.As(err, &refusal) || refusal.Reason != reservation.RateLimited || refusal.RetryAfter <= 0 || !contains(refusal.Message, "quotas.rate") || !contains(refusal.Message, "acme") {
		t.Errorf("the third is answered %v", err)
	}
	if err := errors.Join(
		do(storetest.Extend(storetest.At("a"), 1)),
		do(storetest.Complete(storetest.At("a"), 1, "done")),
		do(&reservation.Lookup{Address: storetest.At("a")})); err != nil {
		t.Errorf("what is no Reserve is refused: %v", err)
	}
	other := reserve("a", 1)
	other.Tenant = "rival"
	if err := do(other); err != nil {
		t.Errorf("another tenant is refused: %v", err)
	}
	answers := e.DoAll(t.Context(), []reservation.Command{reserve("d", 1), storetest.Fail(storetest.At("b"), 1, reservation.ToldRetryable, "no")})
	if !refusedWith(answers[0].Err, reservation.RateLimited) || answers[1].Err != nil {
		t.Errorf("in a batch: %v", answers)
	}
}

func TestARefusalByOneQuotaCostsTheOtherNothing(t *testing.T) {
	e := limited(t, storetest.OpenMem(t), Quotas{Rate: slowly, Burst: 1}, Quotas{Rate: slowly, Burst: 3})
	for i, want := range []reservation.Reason{"", reservation.RateLimited, reservation.RateLimited, reservation.RateLimited, reservation.RateLimited} {
		if _, err := e.Do(t.Context(), reserve(fmt.Sprint(i), 1)); (want == "") != (err == nil) || err != nil && !contains(err.Error(), `tenant "acme" may`) {
			t.Errorf("Reserve %d: %v", i, err)
		}
	}
}

func TestWhatMayBeLiveBoundsNewGrantsOnly(t *testing.T) {
	h := storetest.OpenMem(t)
	e := limited(t, h, Quotas{}, Quotas{Live: 2})
	do := func(c reservation.Command) (reservation.Outcome, error) { return e.Do(t.Context(), c) }
	for _, key := range []string{"a", "b"} {
		if _, err := do(reserve(key, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := do(reserve("c", 1))
	var refusal *reservation.Error
	if !errors.As(err, &refusal) || refusal.Reason != reservation.QuotaExceeded || refusal.RetryAfter != liveRetry || !contains(refusal.Message, "quotas.live") {
		t.Errorf("one too many is answered %v", err)
	}
	// Its owner, whose answer may have been lost, is let in again; others hear how it stands.
	if o, err := do(reserve("a", 1)); err != nil || !o.(*reservation.Owned).Repeated {
		t.Errorf("the owner: %v, %v", o, err)
	}
	if o, err := do(reserve("a", 2)); err != nil || o.(*reservation.InProgress) == nil {
		t.Errorf("another caller: %v, %v", o, err)
	}
	answers := e.DoAll(t.Context(), []reservation.Command{reserve("a", 1), reserve("d", 1), reserve("b", 1)})
	if answers[0].Err != nil || !refusedWith(answers[1].Err, reservation.QuotaExceeded) || answers[2].Err != nil {
		t.Errorf("in a batch: %v", answers)
	}
	if _, err := do(storetest.Complete(storetest.At("a"), 1, "done")); err != nil {
		t.Fatal(err)
	}
	if _, err := do(reserve("c", 1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if o, err := do(reserve("a", 2)); err != nil || o.(*reservation.Replay) == nil {
		t.Errorf("what is done: %v, %v", o, err)
	}
}

// The store's count corrects what a daemon counts by itself: other daemons' grants, and
// leases that lapse.
func TestTheStoresCountIsWhatLiveReservationsGoBy(t *testing.T) {
	h := storetest.OpenMem(t)
	e, other := limited(t, h, Quotas{Live: 2}, Quotas{}), limited(t, h, Quotas{Live: 2}, Quotas{})
	for _, key := range []string{"a", "b"} {
		if _, err := other.Do(t.Context(), reserve(key, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.CountLive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Do(t.Context(), reserve("c", 1)); !refusedWith(err, reservation.QuotaExceeded) {
		t.Errorf("two are live at another daemon: %v", err)
	}
	h.Advance(storetest.Lease + time.Second)
	if err := e.CountLive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Do(t.Context(), reserve("c", 1)); err != nil {
		t.Errorf("both have lapsed: %v", err)
	}
}

func TestWhatIsUnderWayCountsAndWhatIsDroppedDoesNot(t *testing.T) {
	g := newGate(t)
	h := &storetest.Harness{Store: g}
	e := limited(t, h, Quotas{Live: 1}, Quotas{})
	ctx, giveUp := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	do := func(ctx context.Context, key string) {
		_, err := e.Do(ctx, reserve(key, 1))
		answered <- err
	}
	go do(t.Context(), "blocks")
	<-g.entered
	if _, err := e.Do(t.Context(), reserve("second", 1)); !refusedWith(err, reservation.QuotaExceeded) {
		t.Errorf("beside one under way: %v", err)
	}
	g.open()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if _, err := e.Do(t.Context(), storetest.Complete(storetest.At("blocks"), 1, "done")); err != nil {
		t.Fatal(err)
	}
	giveUp()
	do(ctx, "given-up")
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if _, err := e.Do(t.Context(), reserve("third", 1)); err != nil {
		t.Errorf("nothing is live: %v", err)
	}
}

func TestACallKeepsThePoliciesItBeganWithAndTheNextHasTheNew(t *testing.T) {
	g := newGate(t)
	e := start(t, Options{Store: g, Writers: 1})
	defer e.Close()
	lease := make(chan time.Duration, 1)
	do := func(key string) {
		outcome, err := e.Do(t.Context(), reserve(key, 1))
		if err != nil {
			t.Error(err)
			lease <- 0
			return
		}
		lease <- outcome.(*reservation.Owned).LeaseRemaining
	}
	go do("before")
	<-g.entered
	short := DefaultPolicy()
	short.Lease = time.Second
	if err := e.SetPolicies(Policies{Default: short}); err != nil {
		t.Fatal(err)
	}
	if err := e.SetPolicies(Policies{Default: Policy{Lease: 1}}); err == nil {
		t.Error("bad policies are taken")
	}
	g.open()
	if got := <-lease; got != reservation.DefaultLease {
		t.Errorf("the call under way has a lease of %v", got)
	}
	do("after")
	if got := <-lease; got != time.Second {
		t.Errorf("the next call has a lease of %v", got)
	}
}

func TestAPolicysLimitsHold(t *testing.T) {
	p := DefaultPolicy()
	p.NoRerun, p.MaxBodyBytes, p.MaxCheckpointBytes, p.ResultRetention = true, 3, 3, time.Hour
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store, Policies: Policies{Default: p}})
	defer e.Close()
	do := func(c reservation.Command) error {
		_, err := e.Do(t.Context(), c)
		return err
	}
	rerun := reserve("k", 1)
	rerun.OnLapse = reservation.Rerun
	if err := do(rerun); !refusedWith(err, reservation.EnumInvalid) {
		t.Errorf("RERUN: %v", err)
	}
	if err := do(reserve("k", 1)); err != nil {
		t.Fatal(err)
	}
	if err := do(&reservation.Extend{Address: storetest.At("k"), Token: storetest.Token(1), Checkpoint: []byte("four"), CheckpointSequence: 1}); !refusedWith(err, reservation.CheckpointInvalid) {
		t.Errorf("a long checkpoint: %v", err)
	}
	done := &reservation.Complete{Address: storetest.At("k"), Token: storetest.Token(1), Result: reservation.Result{Body: []byte("four")}}
	if err := do(done); !refusedWith(err, reservation.ResultTooLarge) || !contains(err.Error(), "at most 3") {
		t.Errorf("a long body: %v", err)
	}
	done.Result.Body = []byte("ok")
	if err := do(done); err != nil {
		t.Fatal(err)
	}
	h.Advance(time.Hour)
	outcome, err := e.Do(t.Context(), reserve("k", 2))
	if replay, is := outcome.(*reservation.Replay); err != nil || !is || !replay.Result.BodyOmitted || len(replay.Result.Body) > 0 {
		t.Errorf("after the result's retention: %v, %v", outcome, err)
	}
}

func TestOnlyNamedTenantsAndNamespacesAreServed(t *testing.T) {
	p := Policies{
		Tenants:    map[string]TenantPolicy{"acme": {Policy: DefaultPolicy(), OnlyNamed: true}},
		Namespaces: map[Scope]Policy{{"acme", "payments"}: DefaultPolicy()},
	}
	e := start(t, Options{Store: storetest.OpenMem(t).Store, Policies: p})
	defer e.Close()
	for scope, want := range map[Scope]reservation.Reason{
		{"acme", "payments"}: "", {"acme", "mails"}: reservation.NamespaceInvalid, {"rival", "payments"}: reservation.TenantForbidden,
	} {
		c := reserve("k", 1)
		c.Tenant, c.Namespace = scope.Tenant, scope.Namespace
		if _, err := e.Do(t.Context(), c); (want == "") != (err == nil) || want != "" && !refusedWith(err, want) {
			t.Errorf("%v: %v, want %q", scope, err, want)
		}
	}
}

func TestNotExecutedIsAVerdictOnlyAfterTheSettleTime(t *testing.T) {
	p := DefaultPolicy()
	p.Settle = time.Minute
	h := storetest.OpenMem(t)
	e := start(t, Options{Store: h.Store, Policies: Policies{Default: p}, Jitter: func() float64 { return 0 }})
	defer e.Close()
	if _, err := e.Do(t.Context(), reserve("k", 1)); err != nil {
		t.Fatal(err)
	}
	verdict := func(v reservation.Verdict, breaks bool) error {
		outcome, err := e.Do(t.Context(), &reservation.Lookup{Address: storetest.At("k")})
		if err != nil {
			t.Fatal(err)
		}
		c := &reservation.Resolve{
			Address: storetest.At("k"), ExpectedVersion: outcome.(*reservation.Found).Record.Version, Verdict: v, Reason: "r", Actor: "a", BreakLease: breaks,
		}
		if v != reservation.VerdictNotExecuted {
			c.Result = &reservation.Result{Status: 1}
		}
		_, err = e.Do(t.Context(), c)
		return err
	}
	if err := verdict(reservation.VerdictNotExecuted, true); !refusedWith(err, reservation.NotSettled) {
		t.Errorf("while its owner is at work: %v", err)
	}
	h.Advance(reservation.DefaultLease + 59*time.Second)
	err := verdict(reservation.VerdictNotExecuted, false)
	var refusal *reservation.Error
	if !errors.As(err, &refusal) || refusal.Reason != reservation.NotSettled || refusal.RetryAfter != time.Second {
		t.Errorf("a second before: %v", err)
	}
	h.Advance(time.Second)
	if err := verdict(reservation.VerdictNotExecuted, false); err != nil {
		t.Errorf("after it: %v", err)
	}
	// What was found to be done needs no settling.
	if _, err := e.Do(t.Context(), reserve("k", 2)); err != nil {
		t.Fatal(err)
	}
	h.Advance(reservation.DefaultLease)
	if err := verdict(reservation.VerdictSucceeded, false); err != nil {
		t.Errorf("SUCCEEDED at once: %v", err)
	}
}

// sized is a store in which records take what a test says.
type sized struct {
	store.Store
	pages map[store.Scope][]int64
}

func (s *sized) Size(_ context.Context, scope store.Scope, after reservation.Address, _ int) (store.Size, error) {
	n := len(after.Key)
	pages := s.pages[scope]
	if n >= len(pages) {
		return store.Size{}, nil
	}
	return store.Size{Bytes: pages[n], Last: reservation.Address{Key: after.Key + "x"}, More: n+1 < len(pages)}, nil
}

func TestWhatIsStoredIsMeasuredAndBoundsNewGrantsOnly(t *testing.T) {
	s := &sized{Store: storetest.OpenMem(t).Store, pages: map[store.Scope][]int64{}}
	e := limited(t, &storetest.Harness{Store: s}, Quotas{StoredBytes: 10_000}, Quotas{StoredBytes: 1 << 30})
	measure := func() {
		t.Helper()
		for through, n := false, 0; !through; n++ {
			var err error
			if through, err = e.MeasureStored(t.Context()); err != nil || n > 10 {
				t.Fatalf("step %d: %v", n, err)
			}
		}
	}
	do := func(c reservation.Command) error {
		_, err := e.Do(t.Context(), c)
		return err
	}
	measure()
	large := storetest.Complete(storetest.At("a"), 1, string(make([]byte, 20_000)))
	if err := errors.Join(do(reserve("a", 1)), do(reserve("b", 1)), do(large)); err != nil {
		t.Fatal(err)
	}
	// It goes by what the daemon has stored itself, until it is measured.
	err := do(reserve("c", 1))
	if !refusedWith(err, reservation.QuotaExceeded) || !contains(err.Error(), "stored_bytes") {
		t.Errorf("over it: %v", err)
	}
	if err := errors.Join(do(reserve("b", 1)), do(storetest.Complete(storetest.At("b"), 1, "done")), do(reserve("a", 2))); err != nil {
		t.Errorf("what is there: %v", err)
	}
	s.pages[store.Scope{Tenant: "acme"}] = []int64{4000, 5000}
	measure()
	if err := do(reserve("c", 1)); err != nil {
		t.Errorf("measured below it: %v", err)
	}
	s.pages[store.Scope{Tenant: "acme"}] = []int64{4000, 5000, 1000}
	measure()
	if err := do(reserve("d", 1)); !refusedWith(err, reservation.QuotaExceeded) {
		t.Errorf("measured over it: %v", err)
	}
}

// slow is a store whose reads a test lets through.
type slow struct {
	store.Store
	entered chan struct{}
	pass    chan struct{}
}

func (s *slow) Get(ctx context.Context, wanted []store.Wanted) (store.Snapshot, error) {
	s.entered <- struct{}{}
	<-s.pass
	return s.Store.Get(ctx, wanted)
}

func TestWhoIsOverAQuotaDoesNotKeepTheStoreBusy(t *testing.T) {
	s := &slow{Store: storetest.OpenMem(t).Store, entered: make(chan struct{}, 2*relentWaiting), pass: make(chan struct{})}
	e := limited(t, &storetest.Harness{Store: s}, Quotas{Live: 1}, Quotas{})
	if _, err := e.Do(t.Context(), reserve("live", 1)); err != nil {
		t.Fatal(err)
	}
	const all = relentReads + relentWaiting + 50
	answered := make(chan error, all)
	for i := range all {
		go func() {
			_, err := e.Do(t.Context(), reserve(fmt.Sprint(i), 1))
			answered <- err
		}()
	}
	// Those for whom there is no room hear it while all reads still hang.
	for range 50 {
		if err := <-answered; !refusedWith(err, reservation.QuotaExceeded) {
			t.Errorf("without a look: %v", err)
		}
	}
	if n := len(s.entered); n > relentReads {
		t.Errorf("%d reads are under way at once", n)
	}
	close(s.pass)
	for range all - 50 {
		if err := <-answered; !refusedWith(err, reservation.QuotaExceeded) {
			t.Errorf("after a look: %v", err)
		}
	}
}

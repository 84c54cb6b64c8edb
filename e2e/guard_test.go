package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/pgtest"
)

// guarding is guarded with another lease, and a short settle time.
func guarding(lease time.Duration) idem.Operation {
	op := guarded()
	op.Lease, op.Settle = lease, time.Second
	return op
}

// effects counts, and tells which one it was.
type effects struct{ n atomic.Int64 }

func (e *effects) do() *idem.Result {
	return &idem.Result{Body: fmt.Appendf(nil, "effect %d", e.n.Add(1))}
}

// wantOnce asks until there is a definite answer: the first effect, or UNRESOLVED where
// that is allowed. A second effect never is.
func wantOnce(t *testing.T, addr string, e *effects, mayBeUnresolved bool) {
	t.Helper()
	client, ctx := newClient(t, addr, idem.Options{}), harness.Bounded(t)
	for {
		answer, err := client.Do(ctx, guarding(time.Second), func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil })
		var unresolved *idem.UnresolvedError
		switch {
		case e.n.Load() != 1:
			t.Fatalf("there are %d effects", e.n.Load())
		case err == nil && answer.Replayed && string(answer.Result.GetBody()) == "effect 1":
			return
		case errors.As(err, &unresolved) && mayBeUnresolved:
			return
		case err == nil || ctx.Err() != nil || !idem.KeepKey(err):
			t.Fatalf("the retry is answered %v, %v", answer, err)
		}
	}
}

func TestACallerThatLeavesRightAfterItsEffectLeavesItsResult(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		ctx, leave := context.WithCancel(t.Context())
		answer, err := newClient(t, d.GRPC, idem.Options{}).Do(ctx, guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) {
			defer leave()
			return e.do(), nil
		})
		if err != nil || answer.Unrecorded != nil {
			t.Errorf("it is answered %+v, %v", answer, err)
		}
		wantOnce(t, d.GRPC, e, false)
	})
}

func TestACallerWhoseDeadlineEndsDuringItsEffectLeavesItsResult(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		proxy := harness.GRPC(t, d.GRPC)
		proxy.Break(fault.On(completeMethod, fault.DelayAnswer(150*time.Millisecond)))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		answer, err := newClient(t, proxy.Addr(), idem.Options{}).Do(ctx, guarding(time.Minute), func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
			<-ctx.Done()
			return e.do(), nil
		})
		if err != nil || answer.Unrecorded != nil {
			t.Errorf("it is answered %+v, %v", answer, err)
		}
		wantOnce(t, d.GRPC, e, false)
	})
}

func TestWhoeverHasNoTimeLeftReservesNothing(t *testing.T) {
	proxy := harness.GRPC(t, house.Serve(t, house.Embedded(t)).GRPC)
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	op := guarding(time.Minute)
	op.MinRemaining = 30 * time.Second
	_, err := newClient(t, proxy.Addr(), idem.Options{}).Do(ctx, op, func(context.Context, *idem.Grant) (*idem.Result, error) {
		t.Error("it is run")
		return nil, nil
	})
	if err == nil || !idem.KeepKey(err) || proxy.Calls(reserveMethod) != 0 {
		t.Errorf("answered %v after %d calls", err, proxy.Calls(reserveMethod))
	}
}

func TestADaemonThatRestartsBetweenReserveAndCompleteLosesNothing(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		answer, err := newClient(t, d.GRPC, idem.Options{}).Do(t.Context(), guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) {
			d.Kill()
			harness.Restart(t, d)
			return e.do(), nil
		})
		if err != nil || answer.Unrecorded != nil {
			t.Errorf("it is answered %+v, %v", answer, err)
		}
		wantOnce(t, d.GRPC, e, false)
	})
}

func TestADatabaseThatCrashesDuringTheEffectLosesNothing(t *testing.T) {
	server, e := pgtest.Start(t), &effects{}
	d := house.Serve(t, harness.OnServer(server.DSN(server.Database(t, ""))))
	answer, err := newClient(t, d.GRPC, idem.Options{}).Do(t.Context(), guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) {
		server.Kill()
		if err := server.Start(); err != nil {
			t.Error(err)
		}
		return e.do(), nil
	})
	if err != nil || answer.Unrecorded != nil {
		t.Errorf("it is answered %+v, %v", answer, err)
	}
	wantOnce(t, d.GRPC, e, false)
}

// The store is away when the outcome is told, for longer than the lease and than Do
// waits: its caller has its answer, and nobody repeats the effect.
func TestAStoreThatIsAwayForCompleteCausesNoSecondEffect(t *testing.T) {
	const lease = 500 * time.Millisecond
	t.Run("embedded", func(t *testing.T) {
		d := house.Serve(t, house.Embedded(t))
		doWithoutStore(t, d.GRPC, lease, d.Kill, func() { harness.Restart(t, d) })
	})
	t.Run("postgres", func(t *testing.T) {
		server := house.Postgres.Server(t)
		proxy := harness.TCP(t, server.Address())
		d := house.Serve(t, harness.OnServer("postgres://postgres@"+proxy.Addr()+"/"+server.Database(t, "")+"?sslmode=disable"))
		doWithoutStore(t, d.GRPC, lease, proxy.Cut, proxy.Restore)
	})
}

func doWithoutStore(t *testing.T, addr string, lease time.Duration, away, back func()) {
	t.Helper()
	e := &effects{}
	client := newClient(t, addr, idem.Options{FinishTimeout: 2 * lease})
	answer, err := client.Do(t.Context(), guarding(lease), func(context.Context, *idem.Grant) (*idem.Result, error) {
		away()
		return e.do(), nil
	})
	if err != nil || answer.Unrecorded == nil || string(answer.Result.GetBody()) != "effect 1" {
		t.Errorf("it is answered %+v, %v: want its result, unrecorded", answer, err)
	}
	back()
	wantOnce(t, addr, e, true)
	if err := client.Close(harness.Bounded(t)); err != nil { // what was not told is told on
		t.Error(err)
	}
	wantOnce(t, addr, e, false)
}

// The database is away for two leases while the owner is at work.
func TestADatabaseThatIsAwayDuringALongEffectEndsItsContextInTime(t *testing.T) {
	const lease = 2 * time.Second
	server := house.Postgres.Server(t)
	database := harness.TCP(t, server.Address())
	d := house.Serve(t, harness.OnServer("postgres://postgres@"+database.Addr()+"/"+server.Database(t, "")+"?sslmode=disable"))
	var lost atomic.Int64
	client := newClient(t, d.GRPC, idem.Options{Hooks: idem.Hooks{LeaseLost: func(idem.Address, error) { lost.Add(1) }}})
	e := &effects{}
	answer, err := client.Do(t.Context(), guarding(lease), func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
		began := time.Now()
		database.Cut()
		harness.Await(t, "the loss of the lease", ctx.Done())
		if took := time.Since(began); took >= lease || !errors.Is(context.Cause(ctx), idem.ErrLeaseLost) {
			t.Errorf("its context ends after %v with %v", took, context.Cause(ctx))
		}
		over := time.NewTimer(2*lease - time.Since(began))
		defer over.Stop()
		<-over.C
		database.Restore()
		return e.do(), nil // it went on all the same
	})
	if err != nil || answer.Unrecorded != nil || lost.Load() != 1 {
		t.Errorf("it is answered %+v, %v after %d losses", answer, err, lost.Load())
	}
	wantOnce(t, d.GRPC, e, false)
}

func TestWhileTheDatabaseIsAwayNoEffectIsBegun(t *testing.T) {
	server := house.Postgres.Server(t)
	database := harness.TCP(t, server.Address())
	d := house.Serve(t, harness.OnServer("postgres://postgres@"+database.Addr()+"/"+server.Database(t, "")+"?sslmode=disable"))
	database.Cut()
	e := &effects{}
	client := newClient(t, d.GRPC, idem.Options{Patience: time.Second})
	_, err := client.Do(t.Context(), guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil })
	if !errors.Is(err, idem.StoreUnavailable) || !idem.KeepKey(err) || e.n.Load() != 0 {
		t.Errorf("answered %v after %d effects", err, e.n.Load())
	}
	database.Restore()
	if _, err := client.Do(harness.Bounded(t), guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil }); err != nil {
		t.Errorf("the retry with the same key: %v", err)
	}
	wantOnce(t, d.GRPC, e, false)
}

// No Extend arrives: the owner must know of its loss before anybody else is told that the
// lease has lapsed.
func TestAnOwnerStopsBeforeItsLeaseLapses(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		proxy := harness.GRPC(t, d.GRPC)
		proxy.Break(fault.On(extendMethod, fault.LoseRequest))
		direct := dial(t, d.GRPC)
		var lost atomic.Int64
		client := newClient(t, proxy.Addr(), idem.Options{Hooks: idem.Hooks{LeaseLost: func(idem.Address, error) { lost.Add(1) }}})
		_, err := client.Do(t.Context(), guarding(2*time.Second), func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
			harness.Await(t, "the loss of the lease", ctx.Done())
			if record := direct.lookup(t, "k"); record.GetState() != idemdv1.State_STATE_PROCESSING {
				t.Errorf("when the owner is stopped, the state is %v already", record.GetState())
			}
			if !errors.Is(context.Cause(ctx), idem.ErrLeaseLost) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil, ctx.Err()
		})
		var unresolved *idem.UnresolvedError
		if !errors.As(err, &unresolved) || lost.Load() != 1 || proxy.Calls(extendMethod) == 0 {
			t.Errorf("answered %v; %d losses, %d calls of Extend", err, lost.Load(), proxy.Calls(extendMethod))
		}
	})
}

func TestALongEffectKeepsItsLease(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		const lease = 600 * time.Millisecond
		direct, client, op := dial(t, d.GRPC), newClient(t, d.GRPC, idem.Options{}), guarding(lease)
		op.Mode = idem.Transactional
		answer, err := client.Do(t.Context(), op, func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
			for over := time.After(3 * lease); ; {
				other, err := direct.Reserve(harness.Bounded(t), rerunning(newToken(), lease))
				if err != nil || other.GetInProgress() == nil {
					t.Errorf("somebody else is answered %v, %v", other, err)
				}
				select {
				case <-over:
					return e.do(), ctx.Err()
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				case <-time.After(lease / 10):
				}
			}
		})
		if err != nil || answer.Attempt != 1 {
			t.Errorf("it is answered %+v, %v", answer, err)
		}
		wantOnce(t, d.GRPC, e, false)
	})
}

// Every call is sent twice, by many callers at once.
func TestHedgedCallersShareOneEffect(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		proxy := harness.GRPC(t, house.Serve(t, s).GRPC)
		proxy.Break(fault.Twice)
		client, e := newClient(t, proxy.Addr(), idem.Options{}), &effects{}
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				answer, err := client.Do(harness.Bounded(t), guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil })
				if err != nil || string(answer.Result.GetBody()) != "effect 1" {
					t.Errorf("a caller is answered %v, %v", answer, err)
				}
			})
		}
		callers.Wait()
		if e.n.Load() != 1 {
			t.Errorf("there are %d effects", e.n.Load())
		}
	})
}

// The caller leaves while the daemon's answer is on its way: nobody has heard of the
// grant, and the key is not held by it.
func TestAGrantThatNobodyHeardIsWithdrawn(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		proxy := harness.GRPC(t, d.GRPC)
		ctx, leave := context.WithCancel(t.Context())
		proxy.Break(fault.Times(1, fault.On(reserveMethod, func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
			_, err := fault.LoseAnswer(ctx, method, forward)
			leave()
			return nil, err
		})))
		withdrawn := make(chan error, 1)
		client := newClient(t, proxy.Addr(), idem.Options{Hooks: idem.Hooks{Withdrawn: func(_ idem.Address, err error) { withdrawn <- err }}})
		do := func(ctx context.Context) (*idem.Answer, error) {
			return client.Do(ctx, guarding(time.Minute), func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil })
		}
		if _, err := do(ctx); err == nil || e.n.Load() != 0 {
			t.Fatalf("answered %v, after %d effects", err, e.n.Load())
		}
		if err := harness.Await(t, "the withdrawal", withdrawn); err != nil {
			t.Errorf("withdrawn with %v", err)
		}
		if answer, err := do(harness.Bounded(t)); err != nil || answer.Attempt != 2 || e.n.Load() != 1 {
			t.Errorf("the retry is answered %+v, %v", answer, err)
		}
	})
}

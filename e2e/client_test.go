package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// guarded is an operation on the key that reserving names.
func guarded() idem.Operation {
	return idem.Operation{Tenant: "acme", Key: "k", Lease: time.Minute, Fingerprint: idem.Fingerprint{Scheme: "test-v1", Digest: make([]byte, 32)}}
}

// counted counts how often an effect ran.
type counted struct{ n atomic.Int32 }

func (e *counted) run(context.Context, *idem.Grant) (*idem.Result, error) {
	e.n.Add(1)
	return receipt(), nil
}

func (e *counted) mustBe(t *testing.T, want int32) {
	t.Helper()
	if n := e.n.Load(); n != want {
		t.Errorf("the effect ran %d times, want %d", n, want)
	}
}

// Results around every limit: the daemon's, gRPC's default, the message's.
func TestAResultOfAnySizeIsAnsweredWholeAndItsEffectRunsOnce(t *testing.T) {
	const mib = 1 << 20
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		client := newClient(t, house.Serve(t, s).GRPC, idem.Options{})
		for i, size := range []int{0, mib - 1, mib, mib + 1, 39 * mib / 10, 4 * mib, 41 * mib / 10, 8 * mib, 16 * mib} {
			op := guarded()
			op.Key = fmt.Sprint("size-", i)
			sized := &idem.Result{Status: 201, Body: make([]byte, size), DecisionId: "ch_1", BodyRef: ""}
			answer, err := client.Do(harness.Bounded(t), op, func(context.Context, *idem.Grant) (*idem.Result, error) { return sized, nil })
			if err != nil || len(answer.Result.GetBody()) != size || answer.Unrecorded != nil {
				t.Fatalf("%d bytes: answered %v", size, err)
			}
			var again counted
			replay, err := client.Do(harness.Bounded(t), op, again.run)
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			again.mustBe(t, 0)
			kept, r := size <= idem.MaxBodyBytes, replay.Result
			if !replay.Replayed || r.GetStatus() != 201 || r.GetDecisionId() != "ch_1" || r.GetBodyOmitted() == kept || kept && len(r.GetBody()) != size {
				t.Errorf("%d bytes: replayed %d bytes, omitted: %v", size, len(r.GetBody()), r.GetBodyOmitted())
			}
		}
	})
}

// gRPC repeats calls by itself, and every answer is lost once.
func TestADoWhoseEveryAnswerIsLostRunsItsEffectOnce(t *testing.T) {
	for name, options := range map[string][]grpc.DialOption{"the client repeats": nil, "gRPC repeats": {grpc.WithDefaultServiceConfig(retryPolicy)}} {
		t.Run(name, func(t *testing.T) {
			d := house.Serve(t, house.Embedded(t))
			proxy := harness.GRPC(t, d.GRPC)
			var lost sync.Map
			proxy.Break(func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
				if _, before := lost.LoadOrStore(method, true); before {
					return forward(ctx)
				}
				return fault.LoseAnswer(ctx, method, forward)
			})
			client := idem.New(harness.Dial(t, proxy.Addr(), append(idem.DialOptions(), options...)...), idem.Options{})
			var once counted
			answer, err := client.Do(harness.Bounded(t), guarded(), func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
				if err := g.Checkpoint(ctx, []byte("half")); err != nil {
					return nil, err
				}
				return once.run(ctx, g)
			})
			if err != nil || answer.Attempt != 1 || answer.Unrecorded != nil {
				t.Errorf("answered %+v, %v", answer, err)
			}
			once.mustBe(t, 1)
			if is := dial(t, d.GRPC).lookup(t, "k"); is.GetAttempt() != 1 || is.GetState() != idemdv1.State_STATE_SUCCEEDED || string(is.GetCheckpoint()) != "half" {
				t.Errorf("stored is %v", is)
			}
			if proxy.Calls(reserveMethod) != 2 || proxy.Calls(extendMethod) != 2 || proxy.Calls(completeMethod) != 2 {
				t.Error("not every call was repeated: the test proves nothing")
			}
		})
	}
}

func TestOfManyWhoGuardOneOperationOneRunsAndAllGetItsAnswer(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		client := newClient(t, house.Serve(t, s).GRPC, idem.Options{})
		var once counted
		var first atomic.Int32
		var all sync.WaitGroup
		started := make(chan struct{})
		var begin sync.Once
		for range 50 {
			all.Go(func() {
				answer, err := client.Do(harness.Bounded(t), guarded(), func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
					begin.Do(func() { close(started) })
					<-time.After(200 * time.Millisecond) // the others wait meanwhile
					return once.run(ctx, g)
				})
				if err != nil || string(answer.Result.GetBody()) != "receipt" {
					t.Errorf("answered %+v, %v", answer, err)
					return
				}
				if !answer.Replayed {
					first.Add(1)
				}
			})
		}
		harness.Await(t, "the effect", started)
		all.Wait()
		once.mustBe(t, 1)
		if first.Load() != 1 {
			t.Errorf("%d callers were told that it was theirs", first.Load())
		}
	})
}

func TestWithoutADaemonNoEffectRuns(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	client := newClient(t, d.GRPC, idem.Options{Patience: 300 * time.Millisecond})
	d.Kill()
	var none counted
	_, err := client.Do(harness.Bounded(t), guarded(), none.run)
	none.mustBe(t, 0)
	if status.Code(err) != codes.Unavailable || !idem.KeepKey(err) {
		t.Errorf("answered %v", err)
	}
	harness.Restart(t, d)
	// gRPC tries again by its own clock, which may be longer than the client's patience.
	harness.Until(t, "the daemon to be found again", func() bool {
		_, err := client.Do(harness.Bounded(t), guarded(), none.run)
		return err == nil
	})
	none.mustBe(t, 1)
}

// The daemon hangs for longer than two leases, and its owner works on.
func TestWhileTheDaemonHangsTheOwnerIsStoppedBeforeItsLeaseIsOver(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	lost := make(chan error, 1)
	client := newClient(t, d.GRPC, idem.Options{Hooks: idem.Hooks{LeaseLost: func(_ idem.Address, err error) { lost <- err }}})
	op := guarded()
	op.Lease = 2 * time.Second
	began := time.Now()
	answer, err := client.Do(harness.Bounded(t), op, func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
		d.Pause()
		<-ctx.Done()
		if took := time.Since(began); took >= op.Lease || !errors.Is(context.Cause(ctx), idem.ErrLeaseLost) {
			t.Errorf("the context ended after %v of %v: %v", took, op.Lease, context.Cause(ctx))
		}
		<-time.After(op.Lease)
		d.Resume()
		return receipt(), nil
	})
	if err != nil || answer.Unrecorded != nil {
		t.Errorf("the late answer: %+v, %v", answer, err)
	}
	if err := harness.Await(t, "the hook", lost); !errors.Is(err, idem.ErrLeaseLost) {
		t.Errorf("the hook was told %v", err)
	}
	if is := dial(t, d.GRPC).lookup(t, "k"); is.GetState() != idemdv1.State_STATE_SUCCEEDED {
		t.Errorf("stored is %v", is)
	}
}

func TestARetryRunsAfterTheLeaseOfAnOwnerThatDiedAndNotBefore(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		owner := dial(t, d.GRPC)
		died := owner.own(t, rerunning(newToken(), time.Second))
		client := newClient(t, d.GRPC, idem.Options{})
		op := guarded()
		op.Mode = idem.Transactional
		answer, err := client.Do(harness.Bounded(t), op, func(_ context.Context, g *idem.Grant) (*idem.Result, error) {
			if now := time.Now(); now.Before(died.GetLeaseExpiresAt().AsTime()) || !g.Takeover || g.Attempt != 2 || g.Fence <= died.GetFence() ||
				!g.ReservedAt.Equal(died.GetReservedAt().AsTime()) {
				t.Errorf("granted %+v at %v; the lease ends at %v", g, now, died.GetLeaseExpiresAt().AsTime())
			}
			return receipt(), nil
		})
		if err != nil || answer.Replayed {
			t.Errorf("answered %+v, %v", answer, err)
		}
	})
}

// A Reserve lies around in the network until its caller is gone, and is granted then.
func TestAReserveThatArrivesAfterItsCallerGaveUpIsWithdrawn(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	proxy := harness.GRPC(t, d.GRPC)
	proxy.Break(fault.On(reserveMethod, fault.DelayRequest(700*time.Millisecond)))
	withdrawn := make(chan error, 1)
	client := newClient(t, proxy.Addr(), idem.Options{Hooks: idem.Hooks{Withdrawn: func(_ idem.Address, err error) { withdrawn <- err }}})
	ctx, cancel := context.WithTimeout(harness.Bounded(t), 300*time.Millisecond)
	defer cancel()
	var none counted
	if _, err := client.Do(ctx, guarded(), none.run); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("answered %v", err)
	}
	if err := harness.Await(t, "the withdrawal", withdrawn); err != nil {
		t.Error(err)
	}
	none.mustBe(t, 0)
	if is := dial(t, d.GRPC).lookup(t, "k"); is.GetState() != idemdv1.State_STATE_FAILED_RETRYABLE || len(is.GetHistory()) > 0 {
		t.Errorf("stored is %v", is)
	}
}

// Whoever hangs up while another owner is at work leaves nothing in that owner's record.
func TestAWaiterThatHangsUpLeavesNoTrace(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		direct := dial(t, d.GRPC)
		direct.own(t, reserving(newToken()))
		before := direct.lookup(t, "k")
		withdrawn := make(chan error, 1)
		client := newClient(t, d.GRPC, idem.Options{Hooks: idem.Hooks{Withdrawn: func(_ idem.Address, err error) { withdrawn <- err }}})
		ctx, hangUp := context.WithCancel(harness.Bounded(t))
		time.AfterFunc(300*time.Millisecond, hangUp)
		var none counted
		if _, err := client.Do(ctx, guarded(), none.run); !errors.Is(err, context.Canceled) {
			t.Errorf("answered %v", err)
		}
		if err := harness.Await(t, "the withdrawal", withdrawn); err != nil {
			t.Error(err)
		}
		none.mustBe(t, 0)
		if after := direct.lookup(t, "k"); after.String() != before.String() {
			t.Errorf("the record was\n%v and is\n%v", before, after)
		}
	})
}

func TestAnOldRetryIsRefusedAfterTheTimeThatTheAnswerTold(t *testing.T) {
	d := house.Serve(t, house.Embedded(t))
	client := newClient(t, d.GRPC, idem.Options{})
	op := guarded()
	op.Retention, op.FirstAttemptAt = time.Second, time.Now()
	var once counted
	first, err := client.Do(harness.Bounded(t), op, once.run)
	if err != nil {
		t.Fatal(err)
	}
	replay, err := client.Do(harness.Bounded(t), op, once.run)
	if err != nil || !replay.Replayed || !replay.ExpiresAt.Equal(first.ExpiresAt) {
		t.Errorf("replayed %+v, %v; it was to expire at %v", replay, err, first.ExpiresAt)
	}
	harness.Until(t, "the end of the retention", func() bool {
		_, err := client.Lookup(harness.Bounded(t), &idemdv1.LookupRequest{Tenant: "acme", Key: "k"})
		return errors.Is(err, idem.ReservationNotFound)
	})
	if now := time.Now(); now.Before(first.ExpiresAt) {
		t.Errorf("forgotten at %v, before %v", now, first.ExpiresAt)
	}
	if _, err := client.Do(harness.Bounded(t), op, once.run); !errors.Is(err, idem.KeyMayHaveExpired) || !idem.KeepKey(err) {
		t.Errorf("the old retry is answered %v", err)
	}
	once.mustBe(t, 1)
	op.FirstAttemptAt = time.Time{}
	if _, err := client.Do(harness.Bounded(t), op, once.run); err != nil {
		t.Errorf("a new operation is answered %v", err)
	}
	once.mustBe(t, 2)
}

func TestAnotherFingerprintIsRefusedWithAKeyToDrop(t *testing.T) {
	client := newClient(t, house.Serve(t, house.Embedded(t)).GRPC, idem.Options{})
	for i, ending := range []error{nil, idem.Final(errDeclined), idem.NotExecuted(errDeclined), errDeclined} {
		op := guarded()
		op.Key = fmt.Sprint("ending-", i)
		_, _ = client.Do(harness.Bounded(t), op, func(context.Context, *idem.Grant) (*idem.Result, error) { return nil, ending })
		op.Fingerprint = idem.SHA256("test-v1", []byte("corrected"))
		var none counted
		_, err := client.Do(harness.Bounded(t), op, none.run)
		none.mustBe(t, 0)
		if !errors.Is(err, idem.FingerprintMismatch) || idem.KeepKey(err) {
			t.Errorf("after %v: answered %v", ending, err)
		}
	}
}

func TestAReconcilersNotExecutedWaitsForAPausedOwner(t *testing.T) {
	const lease, settle = 500 * time.Millisecond, 1500 * time.Millisecond
	for name, acts := range map[string]bool{"it never acts": false, "it acts": true} {
		t.Run(name, func(t *testing.T) {
			house.EachStore(t, func(t *testing.T, s harness.Store) {
				d := house.Serve(t, s)
				direct, token := dial(t, d.GRPC), newToken()
				paused := reserving(token)
				paused.Lease = durationpb.New(lease)
				lapse := direct.own(t, paused).GetLeaseExpiresAt().AsTime()
				client := newClient(t, d.GRPC, idem.Options{})
				op := guarded()
				op.Settle = settle
				asked := 0
				op.Reconcile = func(ctx context.Context, _ *idem.Unresolved) (idem.Verdict, error) {
					if asked++; asked == 1 && acts { // the paused owner wakes up now
						_, err := direct.Complete(ctx, completing(token, "the owner's"))
						return idem.WasNotExecuted(), err
					}
					return idem.WasNotExecuted(), nil
				}
				var mine counted
				answer, err := client.Do(harness.Bounded(t), op, func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
					if early := time.Until(lapse.Add(settle)); early > 0 {
						t.Errorf("the effect ran %v before the settle time", early)
					}
					return mine.run(ctx, g)
				})
				if err != nil {
					t.Fatal(err)
				}
				if acts {
					mine.mustBe(t, 0)
					if string(answer.Result.GetBody()) != "the owner's" {
						t.Errorf("answered %+v", answer)
					}
					return
				}
				mine.mustBe(t, 1)
				if is := direct.lookup(t, "k"); answer.Attempt != 2 || asked != 2 || len(is.GetHistory()) != 1 {
					t.Errorf("answered %+v after %d questions; stored is %v", answer, asked, is)
				}
			})
		})
	}
}

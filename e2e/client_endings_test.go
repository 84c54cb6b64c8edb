package e2e

import (
	"context"
	"errors"
	"runtime"
	"time"

	"google.golang.org/grpc"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

var errDeclined = errors.New("card declined")

// shortLease is one that a test waits for to end.
const shortLease = time.Second

func receipt() *idem.Result {
	return &idem.Result{Status: 201, Body: []byte("receipt"), DecisionId: "ch_1"}
}

// endings brings about each ending of docs/client.md, by its name there.
func endings() map[string]func(*walk) {
	return map[string]func(*walk){
		"a result":         returning(receipt(), nil),
		"NotExecuted(err)": returning(nil, idem.NotExecuted(errDeclined)),
		"Final(err)":       returning(nil, idem.Final(errDeclined)),
		"Unknown(err)":     returning(nil, idem.Unknown(errDeclined)),
		"another error":    returning(nil, errDeclined),

		"NotExecuted(err), joined with another error": returning(nil, errors.Join(idem.NotExecuted(errDeclined), errDeclined)),

		"a panic":                                   panics,
		"runtime.Goexit":                            exits,
		"a result, its caller gone":                 callerGone,
		"a result, its lease lost":                  leaseLost,
		"a result, taken over meanwhile":            takenOver,
		`a result, judged "not executed" meanwhile`: judged,

		"a result too large to keep":            returning(&idem.Result{Body: make([]byte, idem.MaxBodyBytes+1), DecisionId: "ch_1"}, nil),
		"a result with something invalid in it": invalidResult,
		"a result, the daemon restarting":       daemonRestarts,

		"a result, the daemon away for longer than FinishTimeout": daemonBackLater,
		"a result, the daemon away for too long":                  daemonAway,
		"the end of its process":                                  processEnds,

		"not started: its caller was gone when the grant came":    goneBeforeGrant,
		"not started: the grant got lost, and its caller hung up": grantLost,
	}
}

func returning(result *idem.Result, err error) func(*walk) {
	return func(w *walk) {
		w.do(harness.Bounded(w), func(context.Context, *idem.Grant) (*idem.Result, error) { return result, err })
	}
}

func panics(w *walk) {
	w.do(harness.Bounded(w), func(context.Context, *idem.Grant) (*idem.Result, error) { panic("in the middle") })
}

func exits(w *walk) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.exited = true
		w.do(harness.Bounded(w), func(context.Context, *idem.Grant) (*idem.Result, error) {
			runtime.Goexit()
			return nil, nil
		})
		w.exited = false
	}()
	<-ended
}

func callerGone(w *walk) {
	ctx, hangUp := context.WithCancel(harness.Bounded(w))
	w.do(ctx, func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
		hangUp()
		<-ctx.Done()
		return receipt(), nil
	})
}

// lapse is an effect that loses its lease and then does something: no Extend arrives.
func (w *walk) lapse(then func()) {
	w.op.Lease = shortLease
	w.proxy.Break(fault.On(extendMethod, fault.LoseRequest))
	w.do(harness.Bounded(w), func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), idem.ErrLeaseLost) {
			w.Errorf("the context ended with %v", context.Cause(ctx))
		}
		then()
		return receipt(), nil
	})
}

// lapsed waits until the daemon counts the lease as over, too.
func (w *walk) lapsed() {
	w.op.Lease = time.Minute
	harness.Until(w, "the lapse", func() bool {
		is := w.direct.lookup(w.T, w.op.Key)
		return is.GetState() == idemdv1.State_STATE_UNKNOWN || is.GetLeaseExpiresAt().AsTime().Before(time.Now())
	})
}

func leaseLost(w *walk) { w.lapse(w.lapsed) }

func takenOver(w *walk) {
	w.lapse(func() {
		w.lapsed()
		token := newToken()
		harness.Until(w, "the takeover", func() bool {
			answer, err := w.direct.Reserve(harness.Bounded(w), w.other(token))
			return err == nil && answer.GetOwned().GetAttempt() == 2
		})
	})
}

func judged(w *walk) {
	w.lapse(func() {
		w.lapsed()
		_, err := w.direct.Resolve(harness.Bounded(w), &idemdv1.ResolveRequest{
			Tenant: w.op.Tenant, Key: w.op.Key, ExpectedVersion: w.direct.lookup(w.T, w.op.Key).GetVersion(),
			Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "the bank had no such charge",
		})
		if err != nil {
			w.Error(err)
		}
	})
}

func invalidResult(w *walk) {
	invalid := receipt()
	invalid.Headers = []*idem.Header{{Name: "not a token", Value: nil}}
	returning(invalid, nil)(w)
}

func daemonRestarts(w *walk) {
	w.do(harness.Bounded(w), func(context.Context, *idem.Grant) (*idem.Result, error) {
		w.daemon.Kill()
		harness.Restart(w, w.daemon)
		return receipt(), nil
	})
}

func daemonBackLater(w *walk) {
	w.client = newClient(w.T, w.proxy.Addr(), idem.Options{FinishTimeout: 200 * time.Millisecond})
	w.proxy.Break(fault.On(completeMethod, fault.LoseRequest))
	returning(receipt(), nil)(w)
	w.proxy.Break(nil)
}

func daemonAway(w *walk) {
	w.op.Lease = shortLease
	w.client = newClient(w.T, w.proxy.Addr(), idem.Options{FinishTimeout: 200 * time.Millisecond})
	w.proxy.Break(fault.On(completeMethod, fault.LoseRequest))
	returning(receipt(), nil)(w)
}

// processEnds: what the daemon sees of a process that ends is a Reserve and nothing more.
func processEnds(w *walk) {
	w.op.Lease = shortLease
	w.direct.own(w.T, w.other(newToken()))
	w.gone = true
}

func goneBeforeGrant(w *walk) {
	ctx, hangUp := context.WithCancel(harness.Bounded(w))
	w.client = idem.New(hangingUp{harness.Dial(w, w.proxy.Addr()), hangUp}, idem.Options{})
	w.do(ctx, w.never)
}

func grantLost(w *walk) {
	ctx, hangUp := context.WithCancel(harness.Bounded(w))
	w.proxy.Break(fault.On(reserveMethod, func(ctx context.Context, method string, forward fault.Forward) ([]byte, error) {
		answer, err := fault.LoseAnswer(ctx, method, forward)
		hangUp()
		return answer, err
	}))
	w.do(ctx, w.never)
}

func (w *walk) never(context.Context, *idem.Grant) (*idem.Result, error) {
	w.Error("fn ran")
	return nil, nil
}

// hangingUp is a connection whose caller hangs up when an answer has come.
type hangingUp struct {
	*grpc.ClientConn
	hangUp func()
}

// Invoke implements grpc.ClientConnInterface.
func (c hangingUp) Invoke(ctx context.Context, method string, request, reply any, o ...grpc.CallOption) error {
	err := c.ClientConn.Invoke(ctx, method, request, reply, o...)
	c.hangUp()
	return err
}

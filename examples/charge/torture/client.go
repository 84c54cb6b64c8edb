package torture

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/examples/charge/bank"
	"github.com/idemd/idemd/examples/charge/shop"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// tenant is whose orders are charged.
const tenant = "torture"

// mortal is the connection of a process that may die: then nothing it says is heard.
type mortal struct {
	grpc.ClientConnInterface
	dead chan struct{}
}

// Invoke implements grpc.ClientConnInterface.
func (m *mortal) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	select {
	case <-m.dead:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	default:
		return m.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	}
}

// loser is a connection on which the answer to the first Reserve gets lost, because the
// client hangs up.
type loser struct {
	grpc.ClientConnInterface
	once   sync.Once
	hangUp func()
}

// Invoke implements grpc.ClientConnInterface.
func (l *loser) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	err := l.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	if response, is := reply.(*idemdv1.ReserveResponse); is {
		l.once.Do(func() {
			l.hangUp()
			proto.Reset(response)
			err = status.FromContextError(context.Canceled).Err()
		})
	}
	return err
}

// call is one call of Do by one client.
type call struct {
	w    *world
	o    *operation
	who  string
	key  string
	plan tryPlan
	idem *idem.Client
	self *mortal // nil = this process doesn't die
	// leave is the client hanging up.
	leave context.CancelFunc
}

// try is one try of a client. It returns when the call has ended, or its process is dead.
func (w *world) try(ctx context.Context, o *operation, who, key string, process *process, t tryPlan) (heard string) {
	ctx, leave := context.WithCancel(ctx)
	c := &call{w: w, o: o, who: who, key: key, plan: t, idem: process.idem, leave: leave}
	if t.hangUp == reserving {
		defer time.AfterFunc(t.after, leave).Stop()
	}
	if t.hangUp == answering {
		conn := w.connection(&loser{ClientConnInterface: process.wire, hangUp: leave})
		c.idem = idem.New(conn, idem.Options{Tenant: tenant, Owner: who})
		defer w.survived(c.idem)
	}
	if t.dies == never {
		defer leave()
		return c.do(ctx)
	}
	c.self = &mortal{ClientConnInterface: process.conn, dead: make(chan struct{})}
	c.idem = idem.New(c.self, idem.Options{Tenant: tenant, Owner: who, FinishTimeout: 10 * time.Millisecond})
	ended := make(chan string, 1)
	go func() { // nobody waits for the dead
		defer leave()
		ended <- c.do(ctx)
	}()
	select {
	case heard := <-ended: // it lives on, and tells what there is to tell
		w.survived(c.idem)
		return heard
	case <-c.self.dead:
		return heardNothing
	}
}

func (c *call) do(ctx context.Context) (heard string) {
	answer, err := c.idem.Do(ctx, c.w.operation(c.o, c.key, c.plan.wait), c.effect)
	if c.self != nil {
		select {
		case <-c.self.dead:
			return heardNothing
		default:
		}
	}
	heard = c.o.hear(c.w.now(), answer, err)
	c.w.counts.add(heard)
	if err != nil {
		c.o.note(c.w.now(), c.who, "hears %q: %v", heard, err)
	} else {
		c.o.note(c.w.now(), c.who, "hears %q, attempt %d: %s", heard, answer.Attempt, answer.Result.GetBody())
	}
	var unresolved *idem.UnresolvedError
	if c.w.config.Broken == BrokenRepeat && errors.As(err, &unresolved) {
		c.repeatBlindly(context.WithoutCancel(ctx))
	}
	return heard
}

// operation is what Do is given.
func (w *world) operation(o *operation, key string, wait time.Duration) idem.Operation {
	op := idem.Operation{
		Key: key, Fingerprint: idem.SHA256("order-v1", []byte(o.order)), Mode: o.plan.mode,
		Lease: o.plan.lease, Retention: o.plan.retention, Wait: wait, Settle: settleTime, FirstAttemptAt: o.first,
	}
	if o.plan.reconcile {
		op.Reconcile = func(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
			w.counts.add(askedBank)
			return shop.Ask(ctx, w.bank, u.DeriveKey("charge"))
		}
	}
	return op
}

// effect is the function that Do guards.
func (c *call) effect(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
	c.w.counts.add(granted)
	s := c.o.begin(c.w.now(), g)
	c.o.note(c.w.now(), c.who, "owns attempt %d, takeover %v", g.Attempt, g.Takeover)
	if c.plan.dies == beforeEffect {
		return nil, c.die(s)
	}
	if c.plan.hangUp == beforeEffect {
		defer time.AfterFunc(c.plan.after, c.leave).Stop()
	}
	request := bank.Request{Name: g.DeriveKey("charge"), Order: c.o.order, Cents: 1000, Pretend: c.plan.pretend}
	if c.o.plan.mode == idem.Transactional {
		request.Fence = g.Fence
	}
	receipt, err := c.w.bank.Charge(ctx, request)
	if c.plan.dies == afterEffect {
		return nil, c.die(s)
	}
	c.o.note(c.w.now(), c.who, "hears of the bank: %q, %v", receipt, err)
	if err != nil && !errors.Is(err, bank.ErrDeclined) && !errors.Is(err, bank.ErrBusy) && !errors.Is(err, bank.ErrFenced) {
		c.o.undecided(s, c.troubleIn(ctx))
	}
	if c.plan.hangUp == afterEffect {
		c.leave()
	}
	return shop.Outcome(receipt, err)
}

// troubleIn is what the plan has made of a call to the bank that did not come back; "" =
// nothing that was planned.
func (c *call) troubleIn(ctx context.Context) string {
	switch {
	case errors.Is(context.Cause(ctx), idem.ErrLeaseLost):
		return leaseLost
	case ctx.Err() != nil && c.plan.hangUp != never:
		return clientHungUp
	case c.plan.pretend.HangUp != "":
		return bankHungUp
	}
	return ""
}

// die ends the process: from now on nobody hears of it.
func (c *call) die(s *story) error {
	c.o.note(c.w.now(), c.who, "dies")
	c.o.undecided(s, clientDied)
	close(c.self.dead)
	return fmt.Errorf("%s is dead", c.who)
}

// repeatBlindly is what a broken client does: it takes "nobody knows" for "not done".
func (c *call) repeatBlindly(ctx context.Context) {
	found, err := c.idem.Lookup(ctx, &idemdv1.LookupRequest{Tenant: tenant, Key: c.key})
	if err != nil {
		return
	}
	_, err = c.idem.Resolve(ctx, &idemdv1.ResolveRequest{
		Tenant: tenant, Key: c.key, ExpectedVersion: found.GetReservation().GetVersion(),
		Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED, Reason: "it will have failed",
	})
	c.o.note(c.w.now(), c.who, "says that it was not executed: %v", err)
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

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
	case heard := <-ended:
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
	heard = c.o.hear(answer, err)
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
		Lease: o.plan.lease, Retention: 24 * time.Hour, Wait: wait, Settle: settleTime, FirstAttemptAt: o.first,
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
	var undecided error
	if !errors.Is(err, bank.ErrDeclined) && !errors.Is(err, bank.ErrBusy) && !errors.Is(err, bank.ErrFenced) {
		undecided = err
	}
	c.o.finish(ctx, s, c.w.now(), undecided)
	if c.plan.hangUp == afterEffect {
		c.leave()
	}
	return shop.Outcome(receipt, err)
}

// die ends the process: from now on nobody hears of it.
func (c *call) die(s *story) error {
	c.o.note(c.w.now(), c.who, "dies")
	c.o.mu.Lock()
	s.end, s.trouble = c.w.now(), clientDied
	c.o.mu.Unlock()
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

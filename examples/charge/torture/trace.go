package torture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// What the daemon can say to a Reserve.
const (
	owned      = "owned"
	replay     = "replay"
	inProgress = "in progress"
	unresolved = "unresolved"
)

// rpc is one call as it went over the wire.
type rpc struct {
	method      string // Reserve, Extend, Complete, Fail, Resolve or Lookup
	sent, heard time.Duration
	code        codes.Code
	reason      string // idemd's; "" where it did not answer, and where it did not refuse
	// decision is what a Reserve was answered, about which attempt.
	decision string
	attempt  int32
	// lease is what was granted, by an owned or by an Extend.
	lease time.Duration
}

// answered: it is known what the daemon has made of it.
func (r *rpc) answered() bool { return r.code == codes.OK || r.reason != "" }

func (r *rpc) String() string {
	said := r.code.String()
	switch {
	case r.reason != "":
		said = r.reason
	case r.decision != "":
		said = fmt.Sprintf("%s, attempt %d", r.decision, r.attempt)
	}
	if r.lease > 0 {
		said += fmt.Sprintf(", lease %v", r.lease.Round(time.Millisecond))
	}
	return fmt.Sprintf("    %s, sent at %.3f s: %s", r.method, r.sent.Seconds(), said)
}

// trace is all that was called with one token, or with none, in the order of the answers.
type trace struct {
	owner string
	calls []rpc
}

// tap is a connection on which all calls about an operation are noted, below everything
// that the client does about them.
type tap struct {
	grpc.ClientConnInterface
	w *world
}

// Invoke implements grpc.ClientConnInterface.
func (t *tap) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if _, is := args.(*idemdv1.BatchRequest); is {
		return t.batch(ctx, method, args, reply, options...)
	}
	request, has := args.(interface{ GetKey() string })
	if !has {
		return t.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	}
	o := t.w.operationOf(request.GetKey())
	call := rpc{method: method[strings.LastIndexByte(method, '/')+1:], sent: t.w.now()}
	err := t.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	call.heard = t.w.now()
	call.read(reply, err)
	o.trace(args, call)
	return err
}

// operationOf finds the operation by the number in its key.
func (w *world) operationOf(key string) *operation {
	number, _, _ := strings.Cut(strings.TrimPrefix(key, "order-"), "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic("a key that is no order's: " + key)
	}
	return w.operations[n]
}

// read notes what was answered.
func (r *rpc) read(reply any, err error) {
	if err != nil {
		r.code, r.reason = refusalIn(err)
		return
	}
	switch answer := reply.(type) {
	case *idemdv1.ExtendResponse:
		r.lease = answer.GetLeaseRemaining().AsDuration()
	case *idemdv1.ReserveResponse:
		switch d := answer.GetDecision().(type) {
		case *idemdv1.ReserveResponse_Owned:
			r.decision, r.attempt, r.lease = owned, d.Owned.GetAttempt(), d.Owned.GetLeaseRemaining().AsDuration()
		case *idemdv1.ReserveResponse_Replay:
			r.decision, r.attempt = replay, d.Replay.GetAttempt()
		case *idemdv1.ReserveResponse_InProgress:
			r.decision, r.attempt = inProgress, d.InProgress.GetAttempt()
		case *idemdv1.ReserveResponse_Unresolved:
			r.decision, r.attempt = unresolved, d.Unresolved.GetAttempt()
		}
	}
}

// trace notes a call.
func (o *operation) trace(args any, call rpc) {
	token := ""
	if request, has := args.(interface{ GetOwnerToken() []byte }); has {
		token = string(request.GetOwnerToken())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.traces == nil {
		o.traces = map[string]*trace{}
	}
	t := o.traces[token]
	if t == nil {
		t = &trace{}
		o.traces[token] = t
	}
	if request, is := args.(*idemdv1.ReserveRequest); is {
		t.owner = request.GetOwner()
	}
	t.calls = append(t.calls, call)
}

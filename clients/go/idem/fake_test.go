package idem

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// fake is a connection to a daemon that a test scripts, answer by answer. Time in these
// tests is the bubble's of testing/synctest.
type fake struct {
	mu    sync.Mutex
	calls []proto.Message
	kinds map[string]int // how many calls of each kind
	// batches are those that came; their commands are calls, too. refuse may refuse one as
	// a whole, or hold it.
	batches []*idemdv1.BatchRequest
	refuse  func(context.Context, *idemdv1.BatchRequest) error
	// answer gets the request and how many of its kind came before.
	answer func(ctx context.Context, request proto.Message, before int) (proto.Message, error)
}

func (f *fake) Invoke(ctx context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	sent := proto.Clone(request.(proto.Message))
	if batch, is := sent.(*idemdv1.BatchRequest); is {
		response, err := f.batch(ctx, batch)
		if err == nil {
			proto.Merge(reply.(proto.Message), response)
		}
		return err
	}
	response, err := f.one(ctx, sent)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), response)
	return nil
}

// one answers one command, alone or of a batch.
func (f *fake) one(ctx context.Context, sent proto.Message) (proto.Message, error) {
	f.mu.Lock()
	before := f.kinds[kindOf(sent)]
	if f.kinds == nil {
		f.kinds = map[string]int{}
	}
	f.kinds[kindOf(sent)]++
	f.calls = append(f.calls, sent)
	f.mu.Unlock()
	return f.answer(ctx, sent, before)
}

// batch answers the commands of a batch, each as if it had come alone.
func (f *fake) batch(ctx context.Context, sent *idemdv1.BatchRequest) (*idemdv1.BatchResponse, error) {
	wire, err := proto.Marshal(sent)
	if err != nil {
		return nil, err
	}
	batch := &idemdv1.BatchRequest{}
	if err := proto.Unmarshal(wire, batch); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.batches = append(f.batches, batch)
	refuse := f.refuse
	f.mu.Unlock()
	if refuse != nil {
		if err := refuse(ctx, batch); err != nil {
			return nil, err
		}
	}
	response := &idemdv1.BatchResponse{Outcomes: make([]*idemdv1.BatchOutcome, len(batch.GetCommands()))}
	var all sync.WaitGroup
	for i, c := range batch.GetCommands() {
		all.Go(func() { response.Outcomes[i] = f.outcome(ctx, c) })
	}
	all.Wait()
	return response, nil
}

func (f *fake) outcome(ctx context.Context, c *idemdv1.BatchCommand) *idemdv1.BatchOutcome {
	// A command and its outcome are the only field that is set, of the same name.
	var command protoreflect.FieldDescriptor
	var request proto.Message
	c.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		command, request = field, v.Message().Interface()
		return true
	})
	answer, err := f.one(ctx, request)
	if err != nil {
		said := status.Convert(err).Proto()
		return &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Error{Error: &idemdv1.Status{
			Code: said.GetCode(), Message: said.GetMessage(), Details: said.GetDetails(),
		}}}
	}
	outcome := &idemdv1.BatchOutcome{}
	m := outcome.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(command.Name()), protoreflect.ValueOfMessage(answer.ProtoReflect()))
	return outcome
}

func (f *fake) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("there are no streams")
}

func kindOf(m proto.Message) string {
	return strings.TrimSuffix(string(m.ProtoReflect().Descriptor().Name()), "Request")
}

// sent lists the calls by kind: "Reserve Complete".
func (f *fake) sent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var kinds []string
	for _, c := range f.calls {
		kinds = append(kinds, kindOf(c))
	}
	return strings.Join(kinds, " ")
}

// requests are the calls of one kind.
func requests[R proto.Message](f *fake) (all []R) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if r, is := c.(R); is {
			all = append(all, r)
		}
	}
	return all
}

// script answers the calls of each kind in order; the last answer holds for all that
// follow. An answer is a message, an error, or a function.
type script map[string][]any

type answerFunc = func(context.Context, proto.Message) (proto.Message, error)

func (s script) answer(ctx context.Context, request proto.Message, before int) (proto.Message, error) {
	answers := s[kindOf(request)]
	if len(answers) == 0 {
		return defaultAnswer(request)
	}
	switch a := answers[min(before, len(answers)-1)].(type) {
	case proto.Message:
		return a, nil
	case error:
		return nil, a
	case answerFunc:
		return a(ctx, request)
	}
	panic("an answer is a message, an error or a function")
}

// defaultAnswer is what a daemon says whose key is new and whose lease is 30 s.
func defaultAnswer(request proto.Message) (proto.Message, error) {
	switch r := request.(type) {
	case *idemdv1.ReserveRequest:
		return ownedFor(leaseOf(r.GetLease())), nil
	case *idemdv1.ExtendRequest:
		return &idemdv1.ExtendResponse{LeaseRemaining: durationpb.New(leaseOf(r.GetLease()))}, nil
	case *idemdv1.CompleteRequest:
		return &idemdv1.CompleteResponse{Version: 2}, nil
	case *idemdv1.FailRequest:
		return &idemdv1.FailResponse{Version: 2}, nil
	case *idemdv1.ResolveRequest:
		return &idemdv1.ResolveResponse{Version: 2}, nil
	}
	return nil, refusal(codes.NotFound, ReservationNotFound)
}

func leaseOf(d *durationpb.Duration) time.Duration {
	if d == nil {
		return 30 * time.Second
	}
	return d.AsDuration()
}

func ownedFor(lease time.Duration) *idemdv1.ReserveResponse {
	return decided(&idemdv1.Owned{Attempt: 1, Fence: 7, LeaseRemaining: durationpb.New(lease)})
}

func decided(decision proto.Message) *idemdv1.ReserveResponse {
	switch d := decision.(type) {
	case *idemdv1.Owned:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: d}}
	case *idemdv1.InProgress:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_InProgress{InProgress: d}}
	case *idemdv1.Replay:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Replay{Replay: d}}
	}
	return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Unresolved{Unresolved: decision.(*idemdv1.Unresolved)}}
}

func inProgress(hint time.Duration) *idemdv1.ReserveResponse {
	return decided(&idemdv1.InProgress{
		State: idemdv1.State_STATE_PROCESSING, Attempt: 1, Owner: "another", RetryAfter: durationpb.New(hint),
	})
}

func replayOf(state idemdv1.State, body string) *idemdv1.ReserveResponse {
	return decided(&idemdv1.Replay{State: state, Attempt: 1, Result: &Result{Body: []byte(body)}})
}

func unresolvedFor(elapsed time.Duration) *idemdv1.ReserveResponse {
	return decided(&idemdv1.Unresolved{Attempt: 1, Owner: "another", Version: 5, Elapsed: durationpb.New(elapsed)})
}

// refusal is an error as the daemon makes it.
func refusal(code codes.Code, reason Reason, details ...protoadapt.MessageV1) error {
	return refusalIn("", code, reason, details...)
}

func refusalIn(field string, code codes.Code, reason Reason, details ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Reason: string(reason), Domain: domain, Metadata: map[string]string{"field": field}}
	st, err := status.New(code, "refused").WithDetails(append(details, protoadapt.MessageV1Of(info))...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func tooLargeIn(field string) error { return refusalIn(field, codes.ResourceExhausted, ResultTooLarge) }

func away() error { return status.Error(codes.Unavailable, "connection refused") }

// silence answers when its caller has given up.
func silence(ctx context.Context, _ proto.Message) (proto.Message, error) {
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// after answers late.
func after(d time.Duration, answer proto.Message) answerFunc {
	return func(ctx context.Context, r proto.Message) (proto.Message, error) {
		if !sleep(ctx, d) {
			return silence(ctx, r)
		}
		return answer, nil
	}
}

// bubble runs a test with a client on a scripted daemon, in time of its own. Nothing of
// the client may run on when it ends.
func bubble(t *testing.T, s script, o Options, test func(*testing.T, *Client, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: s.answer}
		c := New(f, o)
		test(t, c, f)
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// operation is one that is valid.
func operation() Operation {
	return Operation{Tenant: "acme", Key: "charge-42", Fingerprint: SHA256("test-v1", []byte("charge 10 EUR"))}
}

func body(text string) *Result { return &Result{Status: 201, Body: []byte(text)} }

// returns is an effect that takes no time.
func returns(result *Result, err error) Func {
	return func(context.Context, *Grant) (*Result, error) { return result, err }
}

// forbidden is an effect that must not run.
func forbidden(t *testing.T) Func {
	return func(context.Context, *Grant) (*Result, error) {
		t.Error("the effect ran")
		return nil, nil
	}
}

// events are the hooks that were called.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) hooks() Hooks {
	note := func(name string) func(Address, error) {
		return func(_ Address, err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if err == nil {
				e.all = append(e.all, name+" nil")
				return
			}
			e.all = append(e.all, name)
		}
	}
	return Hooks{
		LeaseLost: note("LeaseLost"), Unrecorded: note("Unrecorded"), Reduced: note("Reduced"), Withdrawn: note("Withdrawn"),
	}
}

func (e *events) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

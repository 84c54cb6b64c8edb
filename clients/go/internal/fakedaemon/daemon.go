package fakedaemon

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Daemon is a connection to an idemd that is a map: give it to idem.New.
type Daemon struct {
	mu      sync.Mutex
	records map[address]*record
	changed chan struct{} // closed and made anew with each change
	fault   func(proto.Message) error
	calls   int
}

type address struct{ tenant, namespace, key string }

type record struct {
	is    *idemdv1.Reservation
	token []byte
}

// New makes an empty one.
func New() *Daemon {
	return &Daemon{records: map[address]*record{}, changed: make(chan struct{})}
}

// Fault lets calls fail, if the function returns an error for their request, before
// anything is done. Nil ends it.
func (d *Daemon) Fault(fault func(proto.Message) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// Away is a fault: nobody can be reached.
func Away(proto.Message) error { return status.Error(codes.Unavailable, "connection refused") }

// Calls is how many calls have come.
func (d *Daemon) Calls() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// Records is how many reservations there are.
func (d *Daemon) Records() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.records)
}

// Record is the reservation at an address; nil: there is none.
func (d *Daemon) Record(tenant, namespace, key string) *idemdv1.Reservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[address{tenant, namespace, key}]
	if r == nil {
		return nil
	}
	return proto.CloneOf(r.is)
}

// Forget is the end of a retention.
func (d *Daemon) Forget(tenant, namespace, key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.records, address{tenant, namespace, key})
}

// Invoke implements grpc.ClientConnInterface.
func (d *Daemon) Invoke(ctx context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	message := request.(proto.Message)
	if _, batch := message.(*idemdv1.BatchRequest); batch { // so each command is a call, for tests to count and break
		return status.Error(codes.Unimplemented, "the fake has no batches")
	}
	d.mu.Lock()
	d.calls++
	fault := d.fault
	d.mu.Unlock()
	if fault != nil {
		if err := fault(message); err != nil {
			return err
		}
	}
	// What is on a wire is nobody's any more.
	answer, err := d.answer(ctx, proto.Clone(message))
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), answer)
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (d *Daemon) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("there are no streams")
}

func (d *Daemon) answer(ctx context.Context, request proto.Message) (proto.Message, error) {
	switch r := request.(type) {
	case *idemdv1.ReserveRequest:
		return d.hold(ctx, r)
	case *idemdv1.LookupRequest:
		return d.lookup(r)
	case *idemdv1.ExtendRequest:
		return d.extend(r)
	case *idemdv1.CompleteRequest:
		return d.complete(r)
	case *idemdv1.FailRequest:
		return d.fail(r)
	case *idemdv1.ResolveRequest:
		return d.resolve(r)
	}
	return nil, status.Error(codes.Unimplemented, "the fake does not know this call")
}

// hold reserves, and waits as long as the request says while it would be in progress.
func (d *Daemon) hold(ctx context.Context, r *idemdv1.ReserveRequest) (proto.Message, error) {
	over := time.After(r.GetWait().AsDuration())
	for {
		d.mu.Lock()
		answer, err := d.reserve(r)
		changed := d.changed
		d.mu.Unlock()
		if err != nil || answer.GetInProgress() == nil || r.GetWait().AsDuration() == 0 {
			return answer, err
		}
		select {
		case <-changed:
		case <-over:
			return answer, nil
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

func (d *Daemon) reserve(r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	at := address{r.GetTenant(), r.GetNamespace(), r.GetKey()}
	have := d.records[at]
	if have == nil {
		have = &record{is: &idemdv1.Reservation{
			Tenant: r.GetTenant(), Namespace: r.GetNamespace(), Key: r.GetKey(), Fingerprint: r.GetFingerprint(),
			OnLapse: r.GetOnLapse(), PolicyVersion: r.GetPolicyVersion(),
		}}
		d.records[at] = have
		return d.grant(have, r), nil
	}
	if !proto.Equal(have.is.GetFingerprint(), r.GetFingerprint()) {
		return nil, refusal(codes.FailedPrecondition, "FINGERPRINT_MISMATCH")
	}
	switch have.is.GetState() {
	case idemdv1.State_STATE_SUCCEEDED, idemdv1.State_STATE_FAILED_FINAL:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Replay{Replay: &idemdv1.Replay{
			State: have.is.GetState(), Attempt: have.is.GetAttempt(), Result: have.is.GetResult(), ExpiresAt: have.is.GetExpiresAt(),
		}}}, nil
	case idemdv1.State_STATE_UNKNOWN:
		return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Unresolved{Unresolved: &idemdv1.Unresolved{
			Attempt: have.is.GetAttempt(), Version: have.is.GetVersion(), Elapsed: durationpb.New(time.Hour),
		}}}, nil
	case idemdv1.State_STATE_FAILED_RETRYABLE:
		return d.grant(have, r), nil
	}
	if bytes.Equal(have.token, r.GetOwnerToken()) {
		return owned(have.is), nil
	}
	return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_InProgress{InProgress: &idemdv1.InProgress{
		State: have.is.GetState(), Attempt: have.is.GetAttempt(), RetryAfter: durationpb.New(time.Second),
	}}}, nil
}

func (d *Daemon) grant(have *record, r *idemdv1.ReserveRequest) *idemdv1.ReserveResponse {
	have.token = r.GetOwnerToken()
	have.is.State = idemdv1.State_STATE_PROCESSING
	have.is.Attempt++
	have.is.Fence++
	d.change(have)
	return owned(have.is)
}

func owned(is *idemdv1.Reservation) *idemdv1.ReserveResponse {
	return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: &idemdv1.Owned{
		Attempt: is.GetAttempt(), Fence: is.GetFence(), LeaseRemaining: durationpb.New(30 * time.Second),
		PolicyVersion: is.GetPolicyVersion(), LastFailure: is.GetResult(), Checkpoint: is.GetCheckpoint(),
	}}}
}

// change is called under the lock.
func (d *Daemon) change(have *record) {
	have.is.Version++
	close(d.changed)
	d.changed = make(chan struct{})
}

// held is the record that the token holds. It is called under the lock.
func (d *Daemon) held(tenant, namespace, key string, token []byte) (*record, error) {
	have := d.records[address{tenant, namespace, key}]
	switch {
	case have == nil:
		return nil, refusal(codes.NotFound, "RESERVATION_NOT_FOUND")
	case !bytes.Equal(have.token, token):
		return nil, refusal(codes.FailedPrecondition, "STALE_TOKEN")
	case have.is.GetState() != idemdv1.State_STATE_PROCESSING:
		return nil, refusal(codes.FailedPrecondition, "ALREADY_FINISHED")
	}
	return have, nil
}

func (d *Daemon) finish(have *record, state idemdv1.State, result *idemdv1.Result) {
	have.is.State, have.is.Result = state, result
	have.is.ExpiresAt = timestamppb.New(time.Now().Add(7 * 24 * time.Hour))
	d.change(have)
}

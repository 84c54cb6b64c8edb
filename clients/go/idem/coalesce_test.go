package idem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// echo answers a Lookup with its own key, so that a caller knows its answer.
func echo(r *idemdv1.LookupRequest) *idemdv1.LookupResponse {
	return &idemdv1.LookupResponse{Reservation: &idemdv1.Reservation{Key: r.GetKey()}}
}

// held is a daemon that holds the first call of all, and each batch, until a test lets
// them go.
type held struct {
	*fake
	client *Client
	first  chan struct{}
	goOn   chan struct{} // one batch may go on
}

func holding(o Options) *held {
	h := &held{first: make(chan struct{}), goOn: make(chan struct{})}
	h.fake = &fake{
		answer: func(ctx context.Context, request proto.Message, _ int) (proto.Message, error) {
			if r, is := request.(*idemdv1.LookupRequest); is {
				if r.GetKey() == "first" {
					select {
					case <-h.first:
					case <-ctx.Done():
						return nil, status.FromContextError(ctx.Err()).Err()
					}
				}
				if r.GetKey() == "refused" {
					return nil, status.Error(codes.PermissionDenied, "not yours")
				}
				return echo(r), nil
			}
			return defaultAnswer(request)
		},
		refuse: func(ctx context.Context, _ *idemdv1.BatchRequest) error {
			select {
			case <-h.goOn:
				return nil
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
		},
	}
	h.client = New(h.fake, o)
	return h
}

// lookup looks a key up in the background.
func (h *held) lookup(ctx context.Context, key string) <-chan error {
	done := make(chan error, 1)
	go func() {
		found, err := h.client.Lookup(ctx, &idemdv1.LookupRequest{Tenant: "acme", Key: key})
		if err == nil && found.GetReservation().GetKey() != key {
			err = fmt.Errorf("%s was answered %s", key, found.GetReservation().GetKey())
		}
		done <- err
	}()
	return done
}

// sizes are how many commands each batch had.
func (h *held) sizes() (sizes []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.batches {
		sizes = append(sizes, len(b.GetCommands()))
	}
	return sizes
}

// full has one call on its own and as many batches of one under way as there can be.
func (h *held) full(t *testing.T) (calls []<-chan error) {
	for i := range 1 + maxFlights {
		key := fmt.Sprint("flight-", i)
		if i == 0 {
			key = "first"
		}
		calls = append(calls, h.lookup(t.Context(), key))
		synctest.Wait()
	}
	return calls
}

func TestALoneCallIsSentAtOnceAndOnItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{answer: script{}.answer}
		c := New(f, Options{})
		if _, err := c.Do(t.Context(), operation(), func(context.Context, *Grant) (*Result, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		if f.sent() != "Reserve Complete" || len(f.batches) != 0 {
			t.Errorf("sent %s, and %d batches", f.sent(), len(f.batches))
		}
	})
}

func TestWhatComesMeanwhileIsSentTogetherFirstComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		calls := h.full(t)
		for i := range 50 {
			calls = append(calls, h.lookup(t.Context(), fmt.Sprint("k", i)))
			synctest.Wait()
		}
		close(h.goOn)
		close(h.first)
		for _, done := range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if got := fmt.Sprint(h.sizes()); got != "[1 1 1 1 50]" {
			t.Errorf("batches of %s", got)
		}
		for i, c := range h.batches[maxFlights].GetCommands() {
			if c.GetLookup().GetKey() != fmt.Sprint("k", i) {
				t.Errorf("%d: %s", i, c.GetLookup().GetKey())
			}
		}
	})
}

func TestOneCommandsRefusalIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		calls := h.full(t)
		refused, fine := h.lookup(t.Context(), "refused"), h.lookup(t.Context(), "fine")
		synctest.Wait()
		close(h.goOn)
		close(h.first)
		var is *Error
		if err := <-refused; !errors.As(err, &is) || is.Code != codes.PermissionDenied {
			t.Errorf("the one is told %v", err)
		}
		if err := <-fine; err != nil {
			t.Errorf("the other is told %v", err)
		}
		for _, done := range calls {
			<-done
		}
	})
}

func TestOneCallersEndLeavesItsNeighboursAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		calls := h.full(t)
		ctx, hangUp := context.WithCancel(t.Context())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		queued, late, neighbour := h.lookup(ctx, "queued"), h.lookup(short, "late"), h.lookup(t.Context(), "neighbour")
		synctest.Wait()
		hangUp()
		if err := <-queued; !errors.Is(err, context.Canceled) {
			t.Errorf("who hung up is told %v", err)
		}
		h.goOn <- struct{}{} // now the rest is under way
		synctest.Wait()
		if err := <-late; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("whose time is over is told %v", err)
		}
		close(h.goOn)
		if err := <-neighbour; err != nil {
			t.Errorf("the neighbour is told %v", err)
		}
		close(h.first)
		for _, done := range calls {
			<-done
		}
		for _, b := range h.batches {
			for _, c := range b.GetCommands() {
				if c.GetLookup().GetKey() == "queued" {
					t.Error("a call whose caller had gone was sent")
				}
			}
		}
	})
}

func TestABatchThatAllHaveLeftIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		given := make(chan error, 1)
		refuse := h.refuse
		h.refuse = func(ctx context.Context, b *idemdv1.BatchRequest) error {
			err := refuse(ctx, b)
			given <- err
			return err
		}
		first := h.lookup(t.Context(), "first")
		synctest.Wait()
		ctx, hangUp := context.WithCancel(t.Context())
		gone := h.lookup(ctx, "gone")
		synctest.Wait()
		hangUp()
		<-gone
		if err := <-given; status.Code(err) != codes.Canceled {
			t.Errorf("it ended with %v", err)
		}
		close(h.first)
		<-first
	})
}

func TestABatchThatFailsIsRepeatedCallByCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		var once sync.Once
		refuse := h.refuse
		h.refuse = func(ctx context.Context, b *idemdv1.BatchRequest) (err error) {
			if len(b.GetCommands()) == 3 {
				once.Do(func() { err = status.Error(codes.Unavailable, "the connection broke") })
			}
			if err == nil {
				err = refuse(ctx, b)
			}
			return err
		}
		calls := h.full(t)
		for i := range 3 {
			calls = append(calls, h.lookup(t.Context(), fmt.Sprint("k", i)))
		}
		synctest.Wait()
		close(h.goOn)
		close(h.first)
		for _, done := range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestADaemonThatKnowsNoBatchesGetsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		h.refuse = func(context.Context, *idemdv1.BatchRequest) error {
			return status.Error(codes.Unimplemented, "unknown method Batch")
		}
		first := h.lookup(t.Context(), "first")
		synctest.Wait()
		for range 3 {
			if err := <-h.lookup(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}
		if n := len(h.sizes()); n != 1 {
			t.Errorf("%d batches were tried", n)
		}
		close(h.first)
		<-first
	})
}

func TestNothingWaitsInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		answer := h.answer
		h.answer = func(ctx context.Context, request proto.Message, before int) (proto.Message, error) {
			if _, is := request.(*idemdv1.ReserveRequest); is && before == 0 {
				return &idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_InProgress{InProgress: &idemdv1.InProgress{}}}, nil
			}
			return answer(ctx, request, before)
		}
		first := h.lookup(t.Context(), "first")
		synctest.Wait()
		close(h.goOn)
		got, err := h.client.Reserve(t.Context(), &idemdv1.ReserveRequest{Key: "k", Wait: durationpb.New(time.Minute)})
		if err != nil || got.GetOwned() == nil {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := h.client.Lookup(t.Context(), &idemdv1.LookupRequest{Key: "k", Wait: durationpb.New(time.Minute)}); err != nil {
			t.Error(err)
		}
		if sent := len(requests[*idemdv1.ReserveRequest](h.fake)); sent != 2 || len(h.sizes()) != 1 {
			t.Errorf("%d Reserves, batches of %v", sent, h.sizes())
		}
		close(h.first)
		<-first
	})
}

func TestWhatIsNotJoined(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		with    func(context.Context) context.Context
		body    int
	}{
		"a call with metadata of its own": {with: func(ctx context.Context) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "authorization", "bearer")
		}},
		"any call, without batches": {options: Options{NoBatches: true}},
		"more than a batch holds":   {body: maxJoinedBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := holding(c.options)
				first := h.lookup(t.Context(), "first")
				synctest.Wait()
				ctx := t.Context()
				if c.with != nil {
					ctx = c.with(ctx)
				}
				_, err := h.client.Complete(ctx, &idemdv1.CompleteRequest{Key: "k", Result: &Result{Body: make([]byte, c.body)}})
				if err != nil || len(h.sizes()) != 0 {
					t.Errorf("%v, batches of %v", err, h.sizes())
				}
				close(h.first)
				<-first
			})
		})
	}
}

func TestABatchIsBoundedInCommandsAndBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		calls := h.full(t)
		for i := range maxJoined + 1 {
			calls = append(calls, h.lookup(t.Context(), fmt.Sprint("k", i)))
		}
		synctest.Wait()
		var large sync.WaitGroup
		for range 5 {
			large.Go(func() {
				_, _ = h.client.Complete(t.Context(), &idemdv1.CompleteRequest{Key: "k", Result: &Result{Body: make([]byte, MaxBodyBytes)}})
			})
		}
		synctest.Wait()
		close(h.goOn)
		close(h.first)
		for _, done := range calls {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		large.Wait()
		total := 0
		for _, b := range h.batches {
			total += len(b.GetCommands())
			if n, size := len(b.GetCommands()), proto.Size(b); n > 1000 || size > 4<<20 {
				t.Errorf("a batch of %d commands and %d bytes", n, size)
			}
		}
		if total != maxFlights+maxJoined+1+5 {
			t.Errorf("%d commands were sent in batches", total)
		}
	})
}

func TestOfManyWhoComeAndGoEachHearsItsOwnAnswer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &fake{answer: func(_ context.Context, request proto.Message, _ int) (proto.Message, error) {
		return echo(request.(*idemdv1.LookupRequest)), nil
	}}
	h := &held{fake: f, client: New(f, Options{})}
	var callers sync.WaitGroup
	for caller := range 64 {
		rng := rand.New(rand.NewPCG(seed, uint64(caller)))
		callers.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				done := h.lookup(ctx, fmt.Sprint(caller, "-", i))
				if rng.IntN(4) == 0 {
					cancel()
				}
				if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	c := h.client.service.(*coalescer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.singles != 0 || c.flights > 0 && len(c.queue) > 0 {
		t.Errorf("%d single calls, %d flights and %d in the queue are left", c.singles, c.flights, len(c.queue))
	}
}

// altered is a connection that changes the answers to batches.
type altered struct {
	*fake
	alter func(*idemdv1.BatchResponse)
}

func (a *altered) Invoke(ctx context.Context, method string, request, reply any, o ...grpc.CallOption) error {
	err := a.fake.Invoke(ctx, method, request, reply, o...)
	if response, is := reply.(*idemdv1.BatchResponse); is && err == nil {
		a.alter(response)
	}
	return err
}

func TestABatchWhoseAnswerFitsNoCommandIsAnErrorAndNothingBreaks(t *testing.T) {
	for name, alter := range map[string]func(*idemdv1.BatchResponse){
		"too few outcomes": func(r *idemdv1.BatchResponse) { r.Outcomes = nil },
		"an empty outcome": func(r *idemdv1.BatchResponse) { r.Outcomes[0] = &idemdv1.BatchOutcome{} },
		"another kind's": func(r *idemdv1.BatchResponse) {
			r.Outcomes[0] = &idemdv1.BatchOutcome{Outcome: &idemdv1.BatchOutcome_Fail{}}
		},
		"one outcome too many": func(r *idemdv1.BatchResponse) { r.Outcomes = append(r.Outcomes, r.Outcomes[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := holding(Options{})
				h.client = New(&altered{h.fake, alter}, Options{})
				close(h.goOn)
				first := h.lookup(t.Context(), "first")
				synctest.Wait()
				var refused *Error
				if err := <-h.lookup(t.Context(), "k"); !errors.As(err, &refused) || refused.Code != codes.Internal {
					t.Errorf("it is told %v", err)
				}
				close(h.first)
				<-first
			})
		})
	}
}

func TestTheCommandsOfABatchThatIsRefusedAsAWholeGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := holding(Options{})
		h.refuse = func(context.Context, *idemdv1.BatchRequest) error {
			return refusal(codes.InvalidArgument, BatchInvalid)
		}
		first := h.lookup(t.Context(), "first")
		synctest.Wait()
		if err := <-h.lookup(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		close(h.first)
		<-first
	})
}

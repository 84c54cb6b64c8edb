package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// wait is a Reserve that waits.
func (c *client) wait(ctx context.Context, key string, token []byte) (*idemdv1.ReserveResponse, error) {
	return c.Reserve(ctx, &idemdv1.ReserveRequest{
		Tenant: "acme", Key: key, OwnerToken: token, Fingerprint: fingerprint(), Wait: durationpb.New(50 * time.Second),
	})
}

// waiters reads how many calls wait at a daemon.
func (p *process) waiters(t *testing.T) (n int) {
	t.Helper()
	_, body := probe(t, p.http, "/metrics")
	for line := range strings.Lines(body) {
		if _, err := fmt.Sscanf(line, "idemd_waiters %d", &n); err == nil {
			return n
		}
	}
	t.Fatal("there is no metric idemd_waiters")
	return 0
}

func TestOfThoseWhoWaitOneIsGrantedAndAllHearTheAnswer(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			ctx := bounded(t)
			daemons := []*process{serve(t, b.flags...)}
			if b.shared {
				daemons = append(daemons, serve(t, b.flags...))
			}
			var clients []*client
			for _, p := range daemons {
				clients = append(clients, dial(t, p.grpc))
			}
			first := randomToken()
			if r, err := clients[0].reserve(ctx, "k", first); err != nil || r.GetOwned() == nil {
				t.Fatalf("%v %v", r, err)
			}
			const callers = 300
			var owners, replays atomic.Int64
			var calls sync.WaitGroup
			for i := range callers {
				c := clients[i%len(clients)]
				calls.Go(func() {
					token := randomToken()
					r, err := c.wait(ctx, "k", token)
					switch {
					case err != nil:
						t.Errorf("a caller hears %v", err)
					case r.GetOwned() != nil:
						owners.Add(1)
						// Told to the last daemon; those who wait at the others hear of it by the store.
						if err := clients[len(clients)-1].complete(ctx, "k", token, "receipt"); err != nil {
							t.Error(err)
						}
					case string(r.GetReplay().GetResult().GetBody()) == "receipt":
						replays.Add(1)
					default:
						t.Errorf("a caller hears %v", r)
					}
				})
			}
			until(t, "all wait", func() bool {
				n := 0
				for _, p := range daemons {
					n += p.waiters(t)
				}
				return n == callers
			})
			_, err := clients[0].Fail(ctx, &idemdv1.FailRequest{
				Tenant: "acme", Key: "k", OwnerToken: first, Kind: idemdv1.FailureKind_FAILURE_KIND_RETRYABLE,
			})
			if err != nil {
				t.Fatal(err)
			}
			calls.Wait()
			if owners.Load() != 1 || replays.Load() != callers-1 {
				t.Errorf("%d owned it and %d heard the answer", owners.Load(), replays.Load())
			}
		})
	}
}

func TestSIGTERMEndsCallsThatWaitAtOnce(t *testing.T) {
	ctx := bounded(t)
	p := serve(t, backends(t)[0].flags...)
	c := dial(t, p.grpc)
	if _, err := c.reserve(ctx, "k", randomToken()); err != nil {
		t.Fatal(err)
	}
	hints := make(chan time.Duration, 100)
	for range cap(hints) {
		go func() {
			_, err := c.wait(ctx, "k", randomToken())
			hint := time.Duration(-1)
			if status.Code(err) == codes.Unavailable {
				for _, detail := range status.Convert(err).Details() {
					if retry, is := detail.(*errdetails.RetryInfo); is {
						hint = retry.GetRetryDelay().AsDuration()
					}
				}
			}
			hints <- hint
		}()
	}
	until(t, "all wait", func() bool { return p.waiters(t) == cap(hints) })
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, 8*time.Second); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	different := make(map[time.Duration]bool)
	for range cap(hints) {
		hint := <-hints
		if hint <= 0 {
			t.Error("a call that waited got no hint when to come back")
		}
		different[hint] = true
	}
	if len(different) < cap(hints)/2 {
		t.Errorf("%d callers are told to come back at %d different times", cap(hints), len(different))
	}
}

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// retryPolicy has gRPC itself repeat every call that ends UNAVAILABLE.
const retryPolicy = `{"methodConfig": [{"name": [{"service": "idemd.v1.IdempotencyService"}], "waitForReady": true,
  "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "0.5s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// Calls that gRPC and their callers repeat while the daemon is killed again and again,
// after commits too: each caller gets its own grant, and its result is stored once.
func TestCallsRepeatedAcrossKillsGetTheirOwnGrant(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			p := serve(t, b.flags...)
			addr := p.grpc
			conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retryPolicy))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c := &client{IdempotencyServiceClient: idemdv1.NewIdempotencyServiceClient(conn)}
			ctx, cancel := context.WithCancel(bounded(t))
			var callers sync.WaitGroup
			var mu sync.Mutex
			done := 0
			for caller := range 16 {
				callers.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						if !guarded(t, ctx, c, fmt.Sprintf("c%d-%d", caller, i)) {
							return
						}
						mu.Lock()
						done++
						mu.Unlock()
					}
				})
			}
			for range 4 {
				before := func() int { mu.Lock(); defer mu.Unlock(); return done }()
				until(t, "work", func() bool { mu.Lock(); defer mu.Unlock(); return done > before+100 })
				p.kill()
				p = spawn(t, append([]string{"serve", "--grpc-addr", addr, "--http-addr", "127.0.0.1:0"}, b.flags...)...)
			}
			cancel()
			callers.Wait()
			t.Logf("%d operations across 4 kills", done)
		})
	}
}

// guarded reserves and completes one key, repeating what ends without an answer with
// the same token.
func guarded(t *testing.T, ctx context.Context, c *client, key string) bool {
	token := randomToken()
	var decision *idemdv1.ReserveResponse
	if !definite(t, ctx, key, func() (err error) { decision, err = c.reserve(ctx, key, token); return err }) {
		return false
	}
	if decision.GetOwned().GetAttempt() != 1 {
		t.Errorf("%s: its only caller is answered %v", key, decision)
		return false
	}
	return definite(t, ctx, key, func() error { return c.complete(ctx, key, token, "done") })
}

// definite repeats a call until it is answered.
func definite(t *testing.T, ctx context.Context, key string, call func() error) bool {
	for {
		err := call()
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case status.Code(err) != codes.Unavailable:
			t.Errorf("%s: %v", key, err)
			return false
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestAnOutdatedSchemaIsRefusedWhereMigratingIsNotAllowed(t *testing.T) {
	dsn := postgres.Server(t).DSN(postgres.Server(t).Database(t, ""))
	flags := []string{"serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--postgres", dsn, "--migrate=false"}
	code, _, stderr := command(flags...)
	if code == 0 || !strings.Contains(stderr, "idemd migrate") {
		t.Errorf("an empty database: exit code %d: %s", code, stderr)
	}
	for range 2 { // the second finds nothing to do
		if code, out, stderr := command("migrate", "--postgres", dsn); code != 0 {
			t.Fatalf("migrate ends with %d: %s%s", code, out, stderr)
		}
	}
	p := spawn(t, flags...)
	if _, err := dial(t, p.grpc).reserve(bounded(t), "k", randomToken()); err != nil {
		t.Error(err)
	}
}

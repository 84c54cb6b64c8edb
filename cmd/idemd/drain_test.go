package main

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func TestSIGTERMDrainsWithinItsBoundUnderLoad(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			p := serve(t, b.flags...)
			c := dial(t, p.grpc)
			ctx := bounded(t)
			answered := newLedger()
			var callers sync.WaitGroup
			began := make(chan struct{}, 16)
			for caller := range 16 {
				callers.Go(func() {
					began <- struct{}{}
					for i := 0; ; i++ {
						key, token := fmt.Sprintf("c%d-%d", caller, i), randomToken()
						response, err := c.reserve(ctx, key, token)
						if err != nil {
							if code := status.Code(err); code != codes.Unavailable {
								t.Errorf("ended with %v", err)
							}
							return
						}
						if response.GetOwned() != nil {
							answered.noteOwned(key, token)
						}
					}
				})
			}
			for range 16 {
				<-began
			}
			p.signal(t, syscall.SIGTERM)
			if code := p.wait(t, 10*time.Second); code != 0 {
				t.Errorf("the daemon ended with %d:\n%s", code, p.log)
			}
			callers.Wait()
			again := serve(t, b.flags...)
			answered.verify(t, ctx, dial(t, again.grpc))
		})
	}
}

func TestASecondSignalEndsADaemonAtOnce(t *testing.T) {
	server := startPostgres(t)
	p := serve(t, "--postgres", server.DSN(server.Database(t, "")))
	c := dial(t, p.grpc)
	// A store that hangs keeps the drain from ending by itself.
	server.Pause()
	defer server.Resume()
	hanging := make(chan struct{})
	go func() {
		defer close(hanging)
		_, _ = c.reserve(t.Context(), "k", randomToken())
	}()
	until(t, "a call that hangs", func() bool {
		_, body := probe(t, p.http, "/metrics")
		return strings.Contains(body, `grpc_server_started_total{grpc_method="Reserve",grpc_service="idemd.v1.IdempotencyService",grpc_type="unary"} 1`)
	})
	p.signal(t, syscall.SIGTERM)
	until(t, "draining", func() bool { return strings.Contains(p.log.String(), "draining") })
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, 2*time.Second); code == 0 {
		t.Error("it ended as if it had drained")
	}
	<-hanging
}

// Calls that hang in the store and streams that never end by themselves: neither holds
// the daemon beyond its bound.
func TestADrainIsBoundedWhateverHangs(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	p := serve(t, "--postgres", server.DSN(server.Database(t, "")))
	c := dial(t, p.grpc)
	ctx := bounded(t)
	for range 10 {
		watch, err := healthgrpc.NewHealthClient(c.conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.reserve(ctx, "before", randomToken()); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	defer server.Resume()
	var hanging sync.WaitGroup
	for i := range 10 {
		hanging.Go(func() {
			if _, err := c.reserve(ctx, fmt.Sprint("hangs-", i), randomToken()); status.Code(err) != codes.Unavailable {
				t.Errorf("a call that hung is answered %v", err)
			}
		})
	}
	until(t, "calls that hang", func() bool {
		_, body := probe(t, p.http, "/metrics")
		return strings.Contains(body, `grpc_server_started_total{grpc_method="Reserve",grpc_service="idemd.v1.IdempotencyService",grpc_type="unary"} 11`)
	})
	// The bound is 8 s, with the store that does not close.
	began := time.Now()
	p.signal(t, syscall.SIGTERM)
	p.wait(t, 10500*time.Millisecond) // the race detector holds its exit for a second
	t.Logf("it took %v, exit code %d", time.Since(began), p.code)
	hanging.Wait()
}

func TestTwoDaemonsOnOneDataDirectoryAreRefused(t *testing.T) {
	dir := t.TempDir()
	serve(t, "--data-dir", dir)
	code, _, stderr := command("serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--data-dir", dir)
	if code == 0 || !strings.Contains(stderr, dir) {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
}

func TestProbesAndMetricsAnswer(t *testing.T) {
	for _, b := range backends(t) {
		p := serve(t, b.flags...)
		c := dial(t, p.grpc)
		if _, err := c.reserve(bounded(t), "k", randomToken()); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"/livez": "ok", "/readyz": "ok", "/metrics": `idemd_decisions_total{decision="OWNED",namespace="default",tenant="acme"} 1`,
		} {
			if code, body := probe(t, p.http, path); code != 200 || !strings.Contains(body, want) {
				t.Errorf("%s: %s answers %d, without %q", b.name, path, code, want)
			}
		}
		if _, body := probe(t, p.http, "/metrics"); !strings.Contains(body, "idemd_reservations_live 1") {
			t.Errorf("%s: the live reservation is not counted", b.name)
		}
		if code, out, _ := command("health", "--addr", p.grpc); code != 0 || !strings.Contains(out, "SERVING") {
			t.Errorf("%s: health ends with %d: %s", b.name, code, out)
		}
	}
}

func TestBeyondLoopbackOnlyWithInsecure(t *testing.T) {
	code, _, stderr := command("serve", "--grpc-addr", "0.0.0.0:0", "--data-dir", t.TempDir())
	if code == 0 || !strings.Contains(stderr, "--insecure") {
		t.Errorf("it ended with %d: %s", code, stderr)
	}
	p := serve(t, "--insecure", "--data-dir", t.TempDir())
	if _, body := probe(t, p.http, "/metrics"); !strings.Contains(body, "idemd_insecure 1") {
		t.Error("the metric does not say so")
	}
	if !strings.Contains(p.log.String(), "without authentication") {
		t.Errorf("the log does not say so:\n%s", p.log)
	}
}

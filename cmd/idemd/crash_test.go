package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// ledger notes what a daemon has answered.
type ledger struct {
	mu        sync.Mutex
	owned     map[string][]byte // key → token
	completed map[string]bool
}

func newLedger() *ledger {
	return &ledger{owned: map[string][]byte{}, completed: map[string]bool{}}
}

func (l *ledger) noteOwned(key string, token []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owned[key] = token
}

func (l *ledger) noteCompleted(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.completed[key] = true
}

// work reserves and completes fresh keys until the daemon dies.
func (l *ledger) work(ctx context.Context, c *client, prefix string) {
	for i := 0; ctx.Err() == nil; i++ {
		key, token := fmt.Sprint(prefix, "-", i), randomToken()
		response, err := c.reserve(ctx, key, token)
		if err != nil {
			return
		}
		if response.GetOwned() == nil {
			continue
		}
		l.noteOwned(key, token)
		if i%3 == 0 {
			continue
		}
		if c.complete(ctx, key, token, "result of "+key) != nil {
			return
		}
		l.noteCompleted(key)
	}
}

// verify asks for everything that was answered.
func (l *ledger) verify(t *testing.T, ctx context.Context, c *client) {
	t.Helper()
	for key, token := range l.owned {
		response, err := c.reserve(ctx, key, randomToken())
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		replay := response.GetReplay()
		switch {
		case l.completed[key] && string(replay.GetResult().GetBody()) != "result of "+key:
			t.Errorf("%s was completed, and is answered %v", key, response)
		case response.GetOwned() != nil:
			t.Errorf("%s was granted twice", key)
		case !l.completed[key] && replay == nil:
			// The owner itself must still be let in.
			if again, err := c.reserve(ctx, key, token); err != nil || !again.GetOwned().GetRepeated() {
				t.Errorf("%s: its owner is answered %v (%v)", key, again, err)
			}
		}
	}
}

func TestEveryAnsweredTransitionSurvivesKill9(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			answered := newLedger()
			for round := range 6 {
				p := serve(t, b.flags...)
				c := dial(t, p.grpc)
				ctx, cancel := context.WithCancel(bounded(t))
				var callers sync.WaitGroup
				for caller := range 16 {
					callers.Go(func() { answered.work(ctx, c, fmt.Sprintf("r%d-c%d", round, caller)) })
				}
				<-time.After(time.Duration(50+rng.IntN(300)) * time.Millisecond)
				p.kill()
				callers.Wait()
				cancel()
			}
			if len(answered.completed) == 0 {
				t.Fatal("nothing was completed")
			}
			p := serve(t, b.flags...)
			answered.verify(t, bounded(t), dial(t, p.grpc))
			t.Logf("%d grants and %d results outlived 6 kills", len(answered.owned), len(answered.completed))
			p.signal(t, 15)
			if code := p.wait(t, patience); code != 0 {
				t.Errorf("the daemon ended with %d:\n%s", code, p.log)
			}
			if code, stdout, stderr := command(append([]string{"check"}, b.flags...)...); code != 0 {
				t.Errorf("check ended with %d:\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// 100 concurrent Reserves of one key, 1,000 times: on each store, and through two
// daemons on one PostgreSQL.
func TestOfManyEqualCallersExactlyOneIsGranted(t *testing.T) {
	const callers = 100
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	for _, b := range backends(t) {
		daemons := []*process{serve(t, b.flags...)}
		if b.shared {
			daemons = append(daemons, serve(t, b.flags...))
		}
		t.Run(fmt.Sprintf("%s, %d daemons", b.name, len(daemons)), func(t *testing.T) {
			var clients []*client
			for _, p := range daemons {
				clients = append(clients, dial(t, p.grpc))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			for round := range rounds {
				var mu sync.Mutex
				var racing sync.WaitGroup
				grants := 0
				for i := range callers {
					racing.Go(func() {
						response, err := clients[i%len(clients)].reserve(ctx, fmt.Sprint("round-", round), randomToken())
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err != nil:
							t.Errorf("round %d: %v", round, err)
						case response.GetOwned() != nil:
							grants++
						case response.GetInProgress() == nil:
							t.Errorf("round %d: got %v", round, response)
						}
					})
				}
				racing.Wait()
				if grants != 1 {
					t.Fatalf("round %d: %d grants", round, grants)
				}
			}
		})
	}
}

// A PostgreSQL that goes away under load: refused with a hint, nothing granted twice,
// and service resumes by itself.
func TestADaemonOutlivesItsPostgreSQL(t *testing.T) {
	server := startPostgres(t)
	p := serve(t, "--postgres", server.DSN(server.Database(t, "")))
	c := dial(t, p.grpc)
	ctx := bounded(t)
	var mu sync.Mutex
	grants := map[string]int{}
	refused, stop := 0, make(chan struct{})
	var callers sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer callers.Wait()
	defer cancel()
	for range 8 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprint("k-", i) // eight callers want each key
				response, err := c.reserve(ctx, key, randomToken())
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				switch {
				case err == nil && response.GetOwned() != nil:
					grants[key]++
				case err != nil:
					refused++
					if status.Code(err) != codes.Unavailable || !hasRetryHint(err) {
						t.Errorf("refused with %v", err)
					}
				}
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(grants) }
	until(t, "some grants", func() bool { return count() > 50 })
	server.Kill()
	until(t, "refusals", func() bool { mu.Lock(); defer mu.Unlock(); return refused > 20 })
	until(t, "not ready", func() bool { code, _ := probe(t, p.http, "/readyz"); return code == 503 })
	if code, _ := probe(t, p.http, "/livez"); code != 200 {
		t.Errorf("/livez answers %d while the store is away", code)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "ready again", func() bool { code, _ := probe(t, p.http, "/readyz"); return code == 200 })
	before := count()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d keys granted, %d calls refused; the daemon said:\n%s", len(grants), refused, p.log)
		}
	})
	until(t, "grants again", func() bool { return count() > before+50 })
	close(stop)
	callers.Wait()
	for key, n := range grants {
		if n != 1 {
			t.Errorf("%s was granted %d times", key, n)
		}
	}
}

func TestTheSameScriptOfCallsAnswersTheSameOnBothStores(t *testing.T) {
	var first string
	for _, b := range backends(t) {
		p := serve(t, b.flags...)
		transcript := playScript(t, dial(t, p.grpc))
		if first == "" {
			first = transcript
		} else if transcript != first {
			t.Errorf("on one store:\n%s\non %s:\n%s", first, b.name, transcript)
		}
	}
}

// playScript makes calls of every kind and writes down what they were answered, with
// times as lengths.
func playScript(t *testing.T, c *client) string {
	t.Helper()
	ctx := bounded(t)
	s := &transcript{}
	token := func(n byte) []byte { return []byte{15: n} }
	tenant, key := "acme", "script"
	version := int64(0)
	lookup := func() {
		r, err := c.Lookup(ctx, &idemdv1.LookupRequest{Tenant: tenant, Key: key})
		version = r.GetReservation().GetVersion()
		s.say("lookup", r.GetReservation().GetState(), len(r.GetReservation().GetHistory()), err)
	}
	reserve := func(n byte) {
		r, err := c.Reserve(ctx, &idemdv1.ReserveRequest{Tenant: tenant, Key: key, OwnerToken: token(n), Fingerprint: fingerprint(), Owner: fmt.Sprint("caller-", n)})
		s.decision(r, err)
	}
	complete := func(n byte, body string) {
		r, err := c.Complete(ctx, &idemdv1.CompleteRequest{Tenant: tenant, Key: key, OwnerToken: token(n), Result: &idemdv1.Result{Body: []byte(body)}})
		s.say("complete", r.GetRepeated(), err)
	}
	fail := func(n byte, kind idemdv1.FailureKind) {
		r, err := c.Fail(ctx, &idemdv1.FailRequest{Tenant: tenant, Key: key, OwnerToken: token(n), Kind: kind})
		s.say("fail", r.GetRepeated(), err)
	}
	resolve := func(verdict idemdv1.Verdict, result *idemdv1.Result) {
		r, err := c.operator.Resolve(ctx, &idemdv1.ResolveRequest{Tenant: tenant, Key: key, ExpectedVersion: version, Verdict: verdict, Result: result, Reason: "r"})
		s.say("resolve", r.GetRepeated(), err)
	}
	lookup()
	complete(1, "early")
	reserve(1)
	reserve(1)
	reserve(2)
	lookup()
	resolve(idemdv1.Verdict_VERDICT_NOT_EXECUTED, nil)
	fail(2, idemdv1.FailureKind_FAILURE_KIND_RETRYABLE)
	fail(1, idemdv1.FailureKind_FAILURE_KIND_RETRYABLE)
	fail(1, idemdv1.FailureKind_FAILURE_KIND_RETRYABLE)
	reserve(1)
	reserve(2)
	complete(1, "late")
	fail(2, idemdv1.FailureKind_FAILURE_KIND_UNKNOWN)
	reserve(3)
	lookup()
	resolve(idemdv1.Verdict_VERDICT_SUCCEEDED, &idemdv1.Result{Body: []byte("judged")})
	resolve(idemdv1.Verdict_VERDICT_SUCCEEDED, &idemdv1.Result{Body: []byte("judged")})
	resolve(idemdv1.Verdict_VERDICT_FAILED_FINAL, &idemdv1.Result{Body: []byte("judged")})
	complete(2, "judged")
	complete(2, "else")
	reserve(3)
	lookup()
	return s.String()
}

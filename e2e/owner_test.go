package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/harness"
)

const (
	// ownerVariable makes the test program an owner at the daemon that it names; with
	// modeVariable its effect is safe to repeat.
	ownerVariable = "IDEMD_E2E_OWNER"
	modeVariable  = "IDEMD_E2E_TRANSACTIONAL"

	ownerLease = 2 * time.Second
)

// ownedOperation is what the owner and those after it do.
func ownedOperation(mode idem.Mode) idem.Operation {
	op := guarding(ownerLease)
	op.Mode = mode
	return op
}

// ownForEver takes the key "k", leaves a checkpoint, says so, and works until it is
// killed.
func ownForEver(addr string) int {
	conn, err := grpc.NewClient(addr, append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return 1
	}
	mode := idem.External
	if os.Getenv(modeVariable) != "" {
		mode = idem.Transactional
	}
	client := idem.New(conn, idem.Options{Owner: "the one who dies"})
	_, err = client.Do(context.Background(), ownedOperation(mode), func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
		if err := g.Checkpoint(ctx, []byte("half of it")); err != nil {
			return nil, err
		}
		fmt.Println("owned")
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

// killedOwner runs an owner as a process and kills it with -9 in the middle of its
// effect. The time is from before its death.
func killedOwner(t *testing.T, addr string, mode idem.Mode) time.Time {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	owner := exec.CommandContext(t.Context(), program)
	owner.Env = append(os.Environ(), ownerVariable+"="+addr)
	if mode == idem.Transactional {
		owner.Env = append(owner.Env, modeVariable+"=1")
	}
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- line
	}()
	if line := harness.Await(t, "the owner", said); line != "owned\n" {
		t.Fatalf("the owner says %q", line)
	}
	before := time.Now()
	_ = owner.Process.Kill()
	_ = owner.Wait()
	return before
}

func TestWhatADeadOwnerLeftIsDoneAgainOnlyBySomebodyWhoLooked(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		died := killedOwner(t, d.GRPC, idem.External)
		client, op, ctx := newClient(t, d.GRPC, idem.Options{}), ownedOperation(idem.External), harness.Bounded(t)
		do := func() (*idem.Answer, error) {
			return client.Do(ctx, op, func(context.Context, *idem.Grant) (*idem.Result, error) { return e.do(), nil })
		}
		_, err := do()
		var unresolved *idem.UnresolvedError
		if !errors.As(err, &unresolved) || unresolved.Attempt != 1 || unresolved.Owner != "the one who dies" || string(unresolved.Checkpoint) != "half of it" {
			t.Fatalf("after the death it is answered %v", err)
		}
		// The lease was renewed less than a third of it before the death.
		if lasted := time.Since(died); lasted < ownerLease/2 {
			t.Errorf("it is unresolved %v after the death, with a lease of %v", lasted, ownerLease)
		}
		asked := 0
		op.Reconcile = func(context.Context, *idem.Unresolved) (idem.Verdict, error) {
			asked++
			return idem.WasNotExecuted(), nil
		}
		answer, err := do()
		if err != nil || answer.Replayed || answer.Attempt != 2 || e.n.Load() != 1 || asked == 0 {
			t.Errorf("after %d verdicts it is answered %+v, %v", asked, answer, err)
		}
		wantOnce(t, d.GRPC, e, false)
	})
}

func TestATransactionalEffectOfADeadOwnerIsTakenOver(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d, e := house.Serve(t, s), &effects{}
		died := killedOwner(t, d.GRPC, idem.Transactional)
		answer, err := newClient(t, d.GRPC, idem.Options{}).Do(harness.Bounded(t), ownedOperation(idem.Transactional),
			func(_ context.Context, g *idem.Grant) (*idem.Result, error) {
				if lasted := time.Since(died); lasted < ownerLease/2 {
					t.Errorf("it is taken over %v after the death, with a lease of %v", lasted, ownerLease)
				}
				if !g.Takeover || g.Attempt != 2 || string(g.LastCheckpoint) != "half of it" {
					t.Errorf("it is taken over as %+v", g)
				}
				return e.do(), nil
			})
		if err != nil || answer.Attempt != 2 || e.n.Load() != 1 {
			t.Errorf("it is answered %+v, %v", answer, err)
		}
	})
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// What docs/operations.md says of backups is done here, and then everything must be as it
// was: what is replayed, what is unresolved, who owns what.

// state is what is in a store when it is backed up.
type state struct {
	token  []byte // of the owner at work
	before map[string]*idemdv1.Reservation
}

// fill makes a reservation of each kind: done, refused, at work, unresolved.
func fill(t *testing.T, client api) state {
	t.Helper()
	s := state{token: newToken(), before: map[string]*idemdv1.Reservation{}}
	ctx := harness.Bounded(t)
	for _, key := range []string{"done", "refused", "at-work", "unresolved"} {
		request := reserving(newToken())
		request.Key = key
		if key == "at-work" {
			request.OwnerToken = s.token
		}
		client.own(t, request)
		var err error
		switch key {
		case "done":
			_, err = client.Complete(ctx, &idemdv1.CompleteRequest{
				Tenant: "acme", Key: request.GetKey(), OwnerToken: request.GetOwnerToken(), Retention: durationpb.New(time.Hour),
				Result: &idemdv1.Result{Status: 201, Body: []byte("receipt\x00\xff"), Headers: []*idemdv1.Header{{Name: "location", Value: []byte("/1")}}},
			})
		case "refused":
			_, err = client.Fail(ctx, &idemdv1.FailRequest{Tenant: "acme", Key: request.GetKey(), OwnerToken: request.GetOwnerToken(), Kind: idemdv1.FailureKind_FAILURE_KIND_FINAL})
		case "unresolved":
			_, err = client.Fail(ctx, &idemdv1.FailRequest{Tenant: "acme", Key: request.GetKey(), OwnerToken: request.GetOwnerToken(), Kind: idemdv1.FailureKind_FAILURE_KIND_UNKNOWN})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.before[request.GetKey()] = client.lookup(t, request.GetKey())
	}
	return s
}

// mustBeThere demands that a restored store answers as the one before, and goes on.
func (s state) mustBeThere(t *testing.T, client api) {
	t.Helper()
	for key, was := range s.before {
		if is := client.lookup(t, key); !proto.Equal(is, was) {
			t.Errorf("%s is\n%v, it was\n%v", key, is, was)
		}
	}
	if _, err := client.Complete(harness.Bounded(t), &idemdv1.CompleteRequest{Tenant: "acme", Key: "at-work", OwnerToken: s.token}); err != nil {
		t.Errorf("the owner at work can't complete: %v", err)
	}
	fresh := reserving(newToken())
	fresh.Key = "after"
	owned := client.own(t, fresh)
	for key, was := range s.before {
		if owned.GetFence() <= was.GetFence() {
			t.Errorf("a new fence, %d, is not above that of %s, %d", owned.GetFence(), key, was.GetFence())
		}
	}
}

func TestAnEmbeddedStoreIsRestoredFromACopyOfItsDirectory(t *testing.T) {
	for name, end := range map[string]func(stop func() error, kill func()) error{
		"stopped":                       func(stop func() error, _ func()) error { return stop() },
		"killed, as a snapshot sees it": func(_ func() error, kill func()) error { kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			d := house.Serve(t, harness.Store{Flags: []string{"--data-dir", data}})
			s := fill(t, dial(t, d.GRPC))
			if err := end(d.Stop, d.Kill); err != nil {
				t.Fatal(err)
			}
			backup := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			check(t, "--data-dir", backup)
			s.mustBeThere(t, dial(t, house.Serve(t, harness.Store{Flags: []string{"--data-dir", backup}}).GRPC))
		})
	}
}

func TestAPostgreSQLIsRestoredFromADumpOfItsRunningDatabase(t *testing.T) {
	server := house.Postgres.Server(t)
	database, restored := server.Database(t, ""), server.Database(t, "")
	d := house.Serve(t, harness.OnServer(server.DSN(database)))
	s := fill(t, dial(t, d.GRPC))
	server.Restore(t, restored, server.Backup(t, database))
	check(t, "--postgres", server.DSN(restored))
	s.mustBeThere(t, dial(t, house.Serve(t, harness.OnServer(server.DSN(restored))).GRPC))
}

// check runs idemd check on a store.
func check(t *testing.T, flags ...string) {
	t.Helper()
	if out, err := exec.Command(house.Idemd(t), append([]string{"check"}, flags...)...).CombinedOutput(); err != nil {
		t.Errorf("idemd check: %v\n%s", err, out)
	}
}

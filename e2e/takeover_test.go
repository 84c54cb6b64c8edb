package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// An owner is cut off, another one takes over, and the first one comes back.
func TestAnOwnerThatComesBackAfterATakeoverChangesNothing(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		network := harness.TCP(t, d.GRPC)
		slow, quick, ctx := dial(t, network.Addr()), dial(t, d.GRPC), harness.Bounded(t)
		first := newToken()
		before := slow.own(t, rerunning(first, time.Second))
		network.Cut()
		after, second, _ := quick.takeOver(t, time.Hour)
		if !after.GetTakeover() || after.GetAttempt() != 2 || after.GetFence() <= before.GetFence() {
			t.Errorf("it is taken over as %v after %v", after, before)
		}
		network.Restore()

		_, err := slow.Extend(ctx, &idemdv1.ExtendRequest{Tenant: "acme", Key: "k", OwnerToken: first})
		wantReason(t, err, "STALE_TOKEN")
		_, err = slow.Complete(ctx, completing(first, "first"))
		wantReason(t, err, "STALE_TOKEN")
		for _, kind := range []idemdv1.FailureKind{1, 2, 3} {
			_, err = slow.Fail(ctx, failing(first, kind))
			wantReason(t, err, "STALE_TOKEN")
		}
		third, err := slow.Reserve(ctx, rerunning(newToken(), time.Hour))
		if err != nil || third.GetInProgress().GetAttempt() != 2 {
			t.Errorf("a third one is answered %v, %v", third, err)
		}
		if _, err := quick.Complete(ctx, completing(second, "second")); err != nil {
			t.Error(err)
		}
		if got := string(quick.lookup(t, "k").GetResult().GetBody()); got != "second" {
			t.Errorf("the result is %q", got)
		}
	})
}

// The daemon restarts while the owner, who is silent for good, has its lease.
func TestALeaseOutlivesTheDaemonAndIsNotTakenOverBeforeItsEnd(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		client := dial(t, d.GRPC)
		const lease = 3 * time.Second
		sent := time.Now()
		client.own(t, rerunning(newToken(), lease))
		d.Kill()
		harness.Restart(t, d)
		owned, _, refused := client.takeOver(t, time.Hour)
		// The store's clock may run a little apart from this one, never by this much.
		if after := time.Since(sent); after < lease-100*time.Millisecond {
			t.Errorf("taken over %v after a lease of %v was granted", after, lease)
		}
		if owned.GetAttempt() != 2 || !owned.GetTakeover() {
			t.Errorf("it is taken over as %v", owned)
		}
		t.Logf("%d were refused before", refused)
	})
}

// A rival holds the row for longer than the lease that is asked for meanwhile.
func TestALeaseThatWaitedForItsRowHasItsFullLength(t *testing.T) {
	server := house.Postgres.Server(t)
	database := server.Database(t, "")
	client, ctx := dial(t, house.Serve(t, harness.OnServer(server.DSN(database))).GRPC), harness.Bounded(t)
	token := newToken()
	client.own(t, rerunning(token, 300*time.Millisecond))
	held, released := make(chan struct{}), make(chan time.Time, 1)
	go func() {
		defer close(released)
		lock := "BEGIN; SELECT 1 FROM idemd.reservations FOR UPDATE; SELECT pg_advisory_lock(1), pg_sleep(2); SELECT extract(epoch FROM clock_timestamp()); COMMIT"
		rows, err := server.Exec(database, lock)
		if err != nil {
			t.Error(err)
			return
		}
		var seconds float64
		if _, err := fmt.Sscan(rows[len(rows)-1][0], &seconds); err != nil {
			t.Error(err)
			return
		}
		released <- time.UnixMicro(int64(seconds * 1e6))
	}()
	go func() {
		defer close(held)
		for {
			rows, err := server.Exec(database, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")
			if err != nil || len(rows) > 0 {
				return
			}
		}
	}()
	harness.Await(t, "the rival to hold the row", held)
	const lease = time.Second
	extended, err := client.Extend(ctx, &idemdv1.ExtendRequest{Tenant: "acme", Key: "k", OwnerToken: token, Lease: durationpb.New(lease)})
	if err != nil {
		t.Fatal(err)
	}
	end, free := extended.GetLeaseExpiresAt().AsTime(), harness.Await(t, "the rival", released)
	if end.Before(free.Add(lease)) || extended.GetLeaseRemaining().AsDuration() < lease {
		t.Errorf("the row was free at %v, the lease of %v ends at %v", free, lease, end)
	}
}

func TestTenantsShareNothing(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		client, ctx := dial(t, house.Serve(t, s).GRPC), harness.Bounded(t)
		for _, address := range [][3]string{
			{"a", "default", "k"}, {"b", "default", "k"}, {"a", "b", "k"}, {"a", "default", "b:k"}, {"a", "default", "b/k"}, {"a.default", "default", "k"},
		} {
			request := reserving(newToken())
			request.Tenant, request.Namespace, request.Key = address[0], address[1], address[2]
			if owned := client.own(t, request); owned.GetAttempt() != 1 {
				t.Errorf("%v is granted as %v", address, owned)
			}
			done := completing(request.GetOwnerToken(), strings.Join(address[:], "|"))
			done.Tenant, done.Namespace, done.Key = address[0], address[1], address[2]
			if _, err := client.Complete(ctx, done); err != nil {
				t.Error(err)
			}
			found, err := client.Lookup(ctx, &idemdv1.LookupRequest{Tenant: address[0], Namespace: address[1], Key: address[2]})
			if err != nil || string(found.GetReservation().GetResult().GetBody()) != strings.Join(address[:], "|") {
				t.Errorf("%v: found %v, %v", address, found, err)
			}
		}
		for _, tenant := range []string{"", "a:b", "A", "a b"} {
			request := reserving(newToken())
			request.Tenant = tenant
			_, err := client.Reserve(ctx, request)
			wantReason(t, err, "TENANT_INVALID")
		}
	})
}

// The times of a reservation are the store's; what a caller's clock can do is told.
func TestACallersClockThatIsWrongRunsNoOldRetryAsNew(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		client, ctx := dial(t, house.Serve(t, s).GRPC), harness.Bounded(t)
		for skew, want := range map[time.Duration]string{-2 * time.Hour: "KEY_MAY_HAVE_EXPIRED", -time.Minute: "", time.Minute: "", time.Hour: "TIME_INVALID"} {
			request := reserving(newToken())
			request.Key, request.Retention = fmt.Sprintf("k%d", skew), durationpb.New(time.Hour)
			request.FirstAttemptAt = timestampIn(skew)
			_, err := client.Reserve(ctx, request)
			wantReason(t, err, want)
		}
	})
}

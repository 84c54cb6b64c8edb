package e2e

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/pgtest"
)

// smallDisk is a file system of its own, of 64 MiB; fill takes what is left of it, and drain
// gives that back.
func smallDisk(t *testing.T) (dir string, fill, drain func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a file system that gets full needs to be mounted, which only root may")
	}
	dir, err := os.MkdirTemp("", "idemd-disk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	fill = func() {
		file, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for block := make([]byte, 4096); err == nil; {
			_, err = file.Write(block)
		}
	}
	return dir, fill, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
}

// writeUntilRefused reserves and completes with large results until that is refused, and
// gives the keys that were answered.
func writeUntilRefused(t *testing.T, client api) (answered []string) {
	t.Helper()
	body := make([]byte, 64<<10)
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); {
		request := reserving(newToken())
		request.Key = fmt.Sprint("full-", len(answered))
		_, err := client.Reserve(harness.Bounded(t), request)
		if err == nil {
			_, err = client.Complete(harness.Bounded(t), &idemdv1.CompleteRequest{
				Tenant: "acme", Key: request.GetKey(), OwnerToken: request.GetOwnerToken(), Result: &idemdv1.Result{Body: body},
			})
		}
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("a full disk is told as %v", err)
			}
			return answered
		}
		answered = append(answered, request.GetKey())
	}
	t.Fatal("the disk does not get full")
	return nil
}

// mustHaveKept demands everything that was answered, and that new things are taken.
func mustHaveKept(t *testing.T, client api, answered []string) {
	t.Helper()
	fresh := reserving(newToken())
	fresh.Key = "after"
	harness.Until(t, "the store to go on", func() bool {
		_, err := client.Reserve(harness.Bounded(t), fresh)
		return err == nil
	})
	for _, key := range answered {
		if is := client.lookup(t, key); is.GetState() != idemdv1.State_STATE_SUCCEEDED || len(is.GetResult().GetBody()) != 64<<10 {
			t.Errorf("%s is %v", key, is.GetState())
		}
	}
}

// Its own log can't be written: the daemon ends, and whoever supervises it starts it again.
func TestAnEmbeddedStoreOnAFullDiskRefusesAndGoesOnWithoutRepair(t *testing.T) {
	dir, fill, drain := smallDisk(t)
	data := filepath.Join(dir, "data")
	d := house.Serve(t, harness.Store{Flags: []string{"--data-dir", data}})
	client := dial(t, d.GRPC)
	client.own(t, reserving(newToken()))
	fill()
	answered := writeUntilRefused(t, client)
	if again, err := client.Reserve(harness.Bounded(t), reserving(newToken())); err == nil && again.GetOwned() != nil {
		t.Error("on a full disk a key that somebody owns was granted")
	}
	d.Kill()
	drain()
	check(t, "--data-dir", data)
	harness.Restart(t, d)
	mustHaveKept(t, client, answered)
}

func TestAPostgreSQLOnAFullDiskRefusesAndGoesOnWithoutRepair(t *testing.T) {
	dir, fill, drain := smallDisk(t)
	server := pgtest.Start(t)
	database := server.Database(t, "")
	d := house.Serve(t, harness.OnServer(server.DSN(database)))
	space := filepath.Join(dir, "space")
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	if u, err := user.Lookup("postgres"); err == nil { // who the server runs as
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		for _, owned := range []string{dir, space} {
			if err := os.Chown(owned, uid, gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, statement := range []string{"CREATE TABLESPACE small LOCATION '" + space + "'", "ALTER TABLE idemd.reservations SET TABLESPACE small"} {
		if _, err := server.Exec(database, statement); err != nil {
			t.Fatal(err)
		}
	}
	client := dial(t, d.GRPC)
	client.own(t, reserving(newToken()))
	fill()
	answered := writeUntilRefused(t, client)
	drain()
	mustHaveKept(t, client, answered)
	check(t, "--postgres", server.DSN(database))
}

// As a failover that is not noticed, or an administrator, leaves it.
func TestAPostgreSQLThatTakesNoWritesRefusesAndGoesOnByItself(t *testing.T) {
	server := house.Postgres.Server(t)
	database := server.Database(t, "")
	d := house.Serve(t, harness.OnServer(server.DSN(database)))
	client := dial(t, d.GRPC)
	client.own(t, reserving(newToken()))
	set := func(value string) {
		for _, statement := range []string{
			"ALTER DATABASE " + database + " SET default_transaction_read_only = " + value,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + database + "' AND pid <> pg_backend_pid()",
		} {
			if _, err := server.Exec("postgres", statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("on")
	if answered := writeUntilRefused(t, client); len(answered) > 0 {
		t.Errorf("%d were answered", len(answered))
	}
	set("off")
	mustHaveKept(t, client, nil)
}

package pebblestore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// TestWhatWasAnsweredSurvivesKill9 kills a process under load and looks at what it
// leaves, several times over on one directory.
func TestWhatWasAnsweredSurvivesKill9(t *testing.T) {
	seed := newSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	versions := make(map[reservation.Address]int64)
	for round := range 5 {
		killed(t, dir, seed+uint64(round), 1+rng.IntN(400), versions)
		s := mustOpen(t, Options{Dir: dir, Logger: quiet(t)})
		held := stored(t, s)
		for address, version := range versions {
			if rec := held[address]; rec == nil || rec.Version < version {
				t.Errorf("round %d: %v was told with version %d, there is %+v", round, address, version, rec)
			}
		}
		mustBeWhole(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// killed starts a process, kills it after some answers, and adds what it was answered.
func killed(t *testing.T, dir string, seed uint64, answers int, versions map[reservation.Address]int64) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, "IDEMD_TEST_SEED="+strconv.FormatUint(seed, 10))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	lines, read := bufio.NewReader(out), 0
	for {
		line, err := lines.ReadString('\n')
		if err != nil { // the last line may be cut off: nobody was told
			break
		}
		var address reservation.Address
		var version int64
		if _, err := fmt.Sscanf(line, "%s %s %s %d\n", &address.Tenant, &address.Namespace, &address.Key, &version); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		versions[address] = max(versions[address], version)
		if read++; read == answers {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if read < answers {
		t.Fatalf("the process ended by itself after %d answers", read)
	}
}

// beKilled applies commands and prints what it is answered.
func beKilled(dir string) {
	s, err := Open(context.Background(), Options{Dir: dir, Logger: discard()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() { callUntilKilled(s, n) })
	}
	callers.Wait()
}

func callUntilKilled(s *Store, n int) {
	for i := 0; ; i++ {
		own := storetest.At(fmt.Sprintf("%s-%d-%d", os.Getenv("IDEMD_TEST_SEED"), n, i))
		shared := storetest.At(fmt.Sprintf("shared-%d", i%16))
		reserve := []reservation.Command{
			storetest.Reserve(own, n), storetest.Lookup(own),
			storetest.Reserve(shared, n*1_000_000+i, storetest.Rerunnable), storetest.Lookup(shared),
		}
		complete := []reservation.Command{
			storetest.Complete(own, n, "done"), storetest.Lookup(own),
			storetest.Fail(shared, n*1_000_000+i, reservation.ToldRetryable, "not done"), storetest.Lookup(shared),
		}
		for _, commands := range [][]reservation.Command{reserve, complete} {
			for k, outcome := range s.Apply(context.Background(), commands) {
				if found, is := outcome.(*reservation.Found); is {
					a := commands[k].Target()
					fmt.Printf("%s %s %s %d\n", a.Tenant, a.Namespace, a.Key, found.Record.Version)
				}
			}
		}
	}
}

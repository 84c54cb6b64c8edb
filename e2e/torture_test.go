package e2e

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/idemd/idemd/e2e/harness"
)

// charge runs examples/charge and returns what it printed, and whether it failed.
func charge(t *testing.T, args ...string) (out string, failed bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	command := exec.CommandContext(ctx, house.Build(t, "../examples/charge", "."), append(args, "--idemd", house.Idemd(t))...)
	text, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, text)
	}
	return string(text), err != nil
}

// Fifty clients, half of them hang up, the daemon is killed with -9: one charge, and one
// receipt for everyone.
func TestTheDemoChargesOnce(t *testing.T) {
	if out, failed := charge(t); failed || !strings.Contains(out, "charges of order 42 in the bank's ledger: 1\n") {
		t.Error(out)
	}
}

// Retries, hang-ups, dead clients, a slow and lying bank, a daemon that is killed again
// and again: the ledger and what everybody heard agree.
func TestTorturedOperationsHappenOnceAndNoneIsForgotten(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		args := []string{"--torture", "2000", "--kills", "6", "--show", "0"}
		if s.Shared {
			args = append(args, "--store", "postgres", s.Flags[0], s.Flags[1])
		}
		out, failed := charge(t, args...)
		t.Log(out) // the seed is in it
		if failed {
			t.Error("a rule was broken")
		}
	})
}

// The torture notices clients that repeat what nobody knows, that use a new key for each
// retry, that let their leases pass or leave grants behind that they did not hear of; a
// daemon that forgets, or lets leases lapse early; and replays that lack something.
func TestTheTortureNoticesWhatIsBroken(t *testing.T) {
	for broken, c := range map[string]struct{ operations, notices string }{
		"repeat":      {"1000", "2 effects"},
		"newkey":      {"300", "2 effects"},
		"amnesia":     {"300", "2 effects"},
		"noextend":    {"1500", "did not extend it"},
		"nowithdraw":  {"3000", "and nothing explains it"},
		"earlylapse":  {"1500", "it was over:"},
		"lossyreplay": {"300", "instead of status:201"},
	} {
		t.Run(broken, func(t *testing.T) {
			t.Parallel() // most of their time is waiting
			out, failed := charge(t, "--torture", c.operations, "--seed", "2", "--kills", "3", "--workers", "100", "--show", "0", "--broken", broken)
			if !failed || !strings.Contains(out, "VIOLATION") || !strings.Contains(out, c.notices) {
				t.Errorf("it was not noticed:\n%s", out)
			}
		})
	}
}

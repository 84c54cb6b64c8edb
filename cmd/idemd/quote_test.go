package main

import (
	"os/exec"
	"testing"
)

// Callers choose keys, and operators paste commands.
func TestAKeyInACommandIsOneWordWhateverItHolds(t *testing.T) {
	for _, key := range []string{"order-1", "x;touch${IFS}/tmp/pwned;#", "it's", "a'b'c", "`id`", "$(id)", "\"", "\\", "*", "~", "!x", "-v", "a&b|c>d<e(f)"} {
		out, err := exec.Command("sh", "-c", "printf %s -- "+shellQuoted(key)).Output()
		if err != nil || string(out) != "--"+key && string(out) != key {
			t.Errorf("%q is %s to a shell, which reads %q (%v)", key, shellQuoted(key), out, err)
		}
	}
}

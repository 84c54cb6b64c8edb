package guard

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
)

// Check says everything that is wrong with what a configuration makes of its operations.
func Check(need Need, op idem.Operation) error {
	var wrong []error
	refuse := func(is bool, format string, values ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf(format, values...))
		}
	}
	const day = 24 * time.Hour
	refuse(need < Required || need > Off, "there is no need %d", need)
	refuse(op.Mode != idem.External && op.Mode != idem.Transactional, "there is no mode %d", op.Mode)
	refuse(op.Lease != 0 && (op.Lease < 100*time.Millisecond || op.Lease > time.Hour), "the lease is %v; 100 ms to 1 h, or 0 for the namespace's", op.Lease)
	refuse(op.Wait > time.Hour, "the wait is %v; up to 1 h, or negative for none", op.Wait)
	refuse(op.MinRemaining > time.Hour, "the least time left is %v; up to 1 h, or negative for whatever is left", op.MinRemaining)
	refuse(op.Settle < 0 || op.Settle > 400*day, "the settle time is %v; up to 400 d, or 0 for the lease", op.Settle)
	refuse(op.Retention != 0 && (op.Retention < time.Second || op.Retention > 400*day), "the retention is %v; 1 s to 400 d, or 0 for the namespace's", op.Retention)
	refuse(len(op.PolicyVersion) > 64, "the policy version is longer than 64 bytes")
	refuse(len(op.Namespace) > 64 || !IsPlain(op.Namespace), "the namespace %q is not 1-64 of a-z 0-9 . _ -", op.Namespace)
	return errors.Join(wrong...)
}

// IsPlain is true of a text of the characters of namespaces, which are those of metadata's names.
func IsPlain(text string) bool {
	return strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

package service

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// reserved is when the operations of these tests were.
func reserved() time.Time { return time.UnixMicro(1_796_049_670_630_606) }

func open(t *testing.T) *Accounts {
	t.Helper()
	accounts, err := OpenAccounts(filepath.Join(t.TempDir(), "accounts.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accounts.Close() })
	return accounts
}

// Attempt 1 has committed and died. By the version alone attempt 2 would take its own
// change for somebody else's.
func TestAnAttemptFindsWhatAnEarlierOneHasCommitted(t *testing.T) {
	accounts, ctx := open(t), context.Background()
	first, err := accounts.Update(ctx, "key", reserved(), "acme", 500, 1)
	if err != nil || first.GetVersion() != 2 {
		t.Fatalf("%v, %v", first, err)
	}
	if _, err := accounts.Update(ctx, "another key", reserved(), "acme", 700, 2); err != nil {
		t.Fatal(err)
	}
	again, err := accounts.Update(ctx, "key", reserved(), "acme", 500, 1)
	if err != nil || again.GetVersion() != 2 || again.GetLimitCents() != 500 {
		t.Errorf("the second attempt hears %v, %v", again, err)
	}
	if now, err := accounts.Get(ctx, "acme"); err != nil || now.GetLimitCents() != 700 || now.GetVersion() != 3 {
		t.Errorf("the account is %v, %v", now, err)
	}
}

func TestOfUpdatesWithOneVersionOneIsDone(t *testing.T) {
	accounts, ctx := open(t), context.Background()
	const updates = 16
	errs := make([]error, updates)
	var all sync.WaitGroup
	for i := range updates {
		all.Go(func() {
			_, errs[i] = accounts.Update(ctx, string(rune('a'+i)), reserved(), "acme", int64(i), 1)
		})
	}
	all.Wait()
	done := 0
	for i, err := range errs {
		var conflict *conflictError
		switch {
		case err == nil:
			done++
		case !errors.As(err, &conflict) || conflict.current != 2:
			t.Errorf("update %d: %v", i, err)
		}
	}
	if done != 1 {
		t.Errorf("%d updates were done", done)
	}
}

func TestALostUpdateLeavesNoKeyBehind(t *testing.T) {
	accounts, ctx := open(t), context.Background()
	var conflict *conflictError
	if _, err := accounts.Update(ctx, "key", reserved(), "acme", 500, 7); !errors.As(err, &conflict) || conflict.current != 1 {
		t.Fatalf("the update with another version: %v", err)
	}
	if got, err := accounts.Update(ctx, "key", reserved(), "acme", 500, 1); err != nil || got.GetVersion() != 2 {
		t.Errorf("the same key later: %v, %v", got, err)
	}
}

// idemd has forgotten the key, and grants it anew.
func TestAKeyThatIsUsedAgainAfterItsRetentionIsAnotherChange(t *testing.T) {
	accounts, ctx := open(t), context.Background()
	if _, err := accounts.Update(ctx, "key", reserved(), "acme", 500, 1); err != nil {
		t.Fatal(err)
	}
	again, err := accounts.Update(ctx, "key", reserved().Add(8*24*time.Hour), "acme", 700, 2)
	if err != nil || again.GetLimitCents() != 700 || again.GetVersion() != 3 {
		t.Errorf("the later change hears %v, %v", again, err)
	}
	if now, err := accounts.Get(ctx, "acme"); err != nil || now.GetLimitCents() != 700 {
		t.Errorf("the account is %v, %v", now, err)
	}
}

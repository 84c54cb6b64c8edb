package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemd/idemd/clients/go/messaging/inbox"
)

func TestAMessageIsDoneOnceAndItsCopiesGetItsResult(t *testing.T) {
	h := newHouse(t)
	h.mustOnce(order("m1", ""), "a", "a", true)
	h.mustOnce(order("m1", ""), "b", "a", false)
	h.mustOnce(order("m2", ""), "c", "c", true)
	h.mustCount(2, "SELECT count(*) FROM effects")
}

func TestEachConsumerDoesAMessageOnce(t *testing.T) {
	h := newHouse(t)
	for _, consumer := range []string{"warehouse", "mailer"} {
		m := order("m1", "order-1")
		m.Consumer = consumer
		h.mustOnce(m, consumer, consumer, true)
		h.mustOnce(m, "a copy", consumer, false)
	}
}

func TestTwoMessagesAboutOnePaymentCountOnceAndEachIsMarkedWithItsResult(t *testing.T) {
	h := newHouse(t)
	h.mustOnce(order("m1", "payment-1"), "a", "a", true)
	h.mustOnce(order("m2", "payment-1"), "b", "a", false)
	h.mustOnce(order("m2", ""), "c", "a", false) // its own mark has the result, too
	h.mustCount(1, "SELECT count(*) FROM effects")
	// An id is no business identity, though it has the same letters.
	h.mustOnce(order("payment-1", ""), "d", "d", true)
}

func TestACopyWaitsForTheOneThatIsInItsTransaction(t *testing.T) {
	for name, end := range map[string]struct {
		commits bool
		copy    inbox.Message
		want    string
	}{
		"that commits":                          {true, order("m1", "payment-1"), "the first"},
		"that rolls back":                       {false, order("m1", "payment-1"), "the copy"},
		"another message about it, committed":   {true, order("m2", "payment-1"), "the first"},
		"another message about it, rolled back": {false, order("m2", "payment-1"), "the copy"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			first := h.begin()
			if _, _, err := h.table.Once(h.ctx, first, order("m1", "payment-1"), reserve("the first")); err != nil {
				t.Fatal(err)
			}
			heard := make(chan string, 1)
			go func() {
				result, _, err := h.once(end.copy, "the copy")
				heard <- fmt.Sprint(result, err)
			}()
			h.awaitLock()
			if end.commits {
				h.commit(first)
			} else if err := first.Rollback(h.ctx); err != nil {
				t.Fatal(err)
			}
			if got := <-heard; got != "reserved by "+end.want+"<nil>" {
				t.Errorf("the copy: %s", got)
			}
			h.mustCount(1, "SELECT count(*) FROM effects")
		})
	}
}

// A copy that waits for one whose handling fails goes on at once, though that one's caller
// keeps its transaction.
func TestACopyDoesNotWaitForTheTransactionOfAHandlingThatHasFailed(t *testing.T) {
	h := newHouse(t)
	first := h.begin()
	failing := make(chan struct{})
	heard := make(chan string, 1)
	_, _, err := h.table.Once(h.ctx, first, order("m1", ""), func(context.Context, pgx.Tx) ([]byte, error) {
		close(failing)
		go func() {
			result, _, err := h.once(order("m1", ""), "the copy")
			heard <- fmt.Sprint(result, err)
		}()
		h.awaitLock()
		return nil, errSoldOut
	})
	if !errors.Is(err, errSoldOut) {
		t.Fatal(err)
	}
	if got := <-heard; got != "reserved by the copy<nil>" {
		t.Errorf("the copy: %s", got)
	}
	h.commit(first)
	h.mustCount(1, "SELECT count(*) FROM effects")
}

var errSoldOut = errors.New("sold out")

func TestFiftyCopiesAtOnceAreDoneOnce(t *testing.T) {
	h := newHouse(t)
	var copies sync.WaitGroup
	answers := make(chan string, 50)
	for i := range 50 {
		copies.Go(func() {
			result, _, err := h.once(order("m1", "payment-1"), fmt.Sprint(i))
			answers <- fmt.Sprint(result, err)
		})
	}
	copies.Wait()
	close(answers)
	first := <-answers
	if !strings.HasSuffix(first, "<nil>") {
		t.Error(first)
	}
	for got := range answers {
		if got != first {
			t.Errorf("answered %s and %s", first, got)
		}
	}
	h.mustCount(1, "SELECT count(*) FROM effects")
}

func TestMessagesWithCrossingIdentitiesDoNotDeadlock(t *testing.T) {
	h := newHouse(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var all sync.WaitGroup
	for range 50 {
		messages := make([]inbox.Message, 10)
		for i := range messages {
			messages[i] = order(fmt.Sprint("m", random.IntN(20)), fmt.Sprint("payment-", random.IntN(20)))
		}
		all.Go(func() {
			for _, m := range messages {
				if _, _, err := h.once(m, m.Business); err != nil {
					t.Errorf("%v: %v", m, err)
				}
			}
		})
	}
	all.Wait()
	h.mustCount(0, "SELECT count(*) - count(DISTINCT what) FROM effects")
	h.mustCount(0, "SELECT count(*) - (SELECT count(*) FROM effects) FROM shop.idem_inbox WHERE kind = 'business'")
}

// A failed handling leaves no mark, also where its caller commits what else it has done.
func TestAnErrorOrAPanicLeavesTheTransactionAsItWas(t *testing.T) {
	for name, fails := range map[string]inbox.Func{
		"an error": func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _ = reserve("a")(ctx, tx)
			return nil, errSoldOut
		},
		"an error of SQL": func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _ = reserve("a")(ctx, tx)
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return nil, err
		},
		"an error of SQL that it swallows": func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return reserve("a")(ctx, tx)
		},
		"a panic": func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _ = reserve("a")(ctx, tx)
			panic(errSoldOut)
		},
		"a result that is too large": func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _ = reserve("a")(ctx, tx)
			return make([]byte, inbox.MaxResultBytes+1), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			tx := h.begin()
			if _, err := tx.Exec(h.ctx, "INSERT INTO effects VALUES ('the caller''s own')"); err != nil {
				t.Fatal(err)
			}
			ended, err := h.end(tx, fails)
			if ended == nil && err == nil {
				t.Error("it is told as done")
			}
			if name == "a panic" && ended != errSoldOut { //nolint:errorlint // as it is
				t.Errorf("the panic became %v", ended)
			}
			h.commit(tx)
			h.mustCount(0, "SELECT count(*) FROM shop.idem_inbox")
			h.mustCount(1, "SELECT count(*) FROM effects")
			h.mustOnce(order("m1", "payment-1"), "the next delivery", "the next delivery", true)
		})
	}
}

// end is how a handling ends: with a panic, or an error.
func (h *house) end(tx pgx.Tx, fn inbox.Func) (panicked any, err error) {
	defer func() { panicked = recover() }()
	_, _, err = h.table.Once(h.ctx, tx, order("m1", "payment-1"), fn)
	return nil, err
}

func TestAResultOfTheLargestSizeIsKeptWhole(t *testing.T) {
	h := newHouse(t)
	for _, first := range []bool{true, false} {
		tx := h.begin()
		result, is, err := h.table.Once(h.ctx, tx, order("m1", ""), func(context.Context, pgx.Tx) ([]byte, error) {
			return make([]byte, inbox.MaxResultBytes), nil
		})
		if err != nil || is != first || len(result) != inbox.MaxResultBytes {
			t.Errorf("%d bytes, first %v, %v", len(result), is, err)
		}
		h.commit(tx)
	}
}

func TestACallerWhoseSnapshotIsOlderThanTheMarkGetsASerializationFailure(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			h := newHouse(t)
			tx, err := h.pool.BeginTx(h.ctx, pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(h.ctx)
			if _, err := tx.Exec(h.ctx, "SELECT count(*) FROM effects"); err != nil {
				t.Fatal(err)
			}
			h.mustOnce(order("m1", ""), "a", "a", true)
			_, _, err = h.table.Once(h.ctx, tx, order("m1", ""), reserve("b"))
			var said *pgconn.PgError
			if !errors.As(err, &said) || said.Code != "40001" {
				t.Errorf("it is told %v", err)
			}
			h.mustCount(1, "SELECT count(*) FROM effects")
		})
	}
}

func TestAnIdentityThatCanNotBeStoredIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	h := newHouse(t)
	tx := h.begin()
	long := func(n int) string { return strings.Repeat("x", n) }
	for field, messages := range map[string][]inbox.Message{
		"consumer":          {{ID: "m"}, {Consumer: long(129), ID: "m"}, {Consumer: "\xff", ID: "m"}},
		"message id":        {{Consumer: "c"}, {Consumer: "c", ID: long(256)}, {Consumer: "c", ID: "a\x00b"}},
		"business identity": {{Consumer: "c", ID: "m", Business: long(256)}, {Consumer: "c", ID: "m", Business: "\xff"}},
	} {
		for _, m := range messages {
			_, _, err := h.table.Once(h.ctx, tx, m, reserve("nobody"))
			var invalid *inbox.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field || strings.Contains(err.Error(), long(100)) {
				t.Errorf("%.40q: told %.200v, want one about the %s", m, err, field)
			}
			if _, err := h.table.CountFailure(h.ctx, tx, m, "x"); !errors.As(err, &invalid) {
				t.Errorf("%.40q: its failure is counted: %v", m, err)
			}
		}
	}
	if _, _, err := h.table.Once(h.ctx, tx, inbox.Message{Consumer: long(128), ID: long(255), Business: long(255)}, reserve("the longest")); err != nil {
		t.Error(err)
	}
	h.commit(tx)
	h.mustCount(1, "SELECT count(*) FROM effects")
}

func TestOnceWithinOnceOfTheSameMessageIsAnErrorAndOfAnotherOneIsNot(t *testing.T) {
	h := newHouse(t)
	for inner, want := range map[string]bool{"m1": false, "m2": true} {
		tx := h.begin()
		_, _, err := h.table.Once(h.ctx, tx, order("m1", ""), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _, err := h.table.Once(ctx, tx, order(inner, ""), reserve("the inner one"))
			return nil, err
		})
		if (err == nil) != want {
			t.Errorf("%s within m1: %v", inner, err)
		}
		_ = tx.Rollback(h.ctx)
	}
}

func TestTwoInboxesInOneDatabaseAreApart(t *testing.T) {
	h := newHouse(t)
	other, err := inbox.New("warehouse", "seen")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Migrate(h.ctx, h.pool); err != nil {
		t.Fatal(err)
	}
	h.mustOnce(order("m1", ""), "a", "a", true)
	h.exec("SET search_path = warehouse") // of one of the pool's sessions: it says nothing
	h.table = other
	h.mustOnce(order("m1", ""), "b", "b", true)
}

func TestNamesThatWouldBeCutOrQuotedAreRefused(t *testing.T) {
	for _, name := range [][2]string{{"Shop", ""}, {"shop; DROP", ""}, {"", "a-b"}, {"", strings.Repeat("x", 41)}, {"1a", ""}} {
		if _, err := inbox.New(name[0], name[1]); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	h := newHouse(t)
	longest, err := inbox.New("", strings.Repeat("x", 40))
	if err != nil {
		t.Fatal(err)
	}
	if err := longest.Migrate(h.ctx, h.pool); err != nil {
		t.Error(err)
	}
}

func TestFailuresAreCountedByMessageAndForgottenWhenItIsSettled(t *testing.T) {
	h := newHouse(t)
	tx := h.begin()
	for want := 1; want <= 3; want++ {
		if n, err := h.table.CountFailure(h.ctx, tx, order("m1", "payment-1"), fmt.Sprint("\x00", want, "\xff", strings.Repeat("x", 1000))); n != want || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if n, err := h.table.CountFailure(h.ctx, tx, order("m2", "payment-1"), "b"); n != 1 || err != nil {
		t.Errorf("another message about it: %d, %v", n, err)
	}
	if err := h.table.Settle(h.ctx, tx, order("m2", "payment-1")); err != nil {
		t.Fatal(err)
	}
	h.commit(tx)
	h.mustCount(1, "SELECT count(*) FROM shop.idem_inbox_failures")
	h.mustCount(1, "SELECT count(*) FROM shop.idem_inbox_failures WHERE id = 'm1' AND attempts = 3 AND last_error LIKE '3xxx%' AND length(last_error) <= 512")
}

func TestTheCommitOfASettledMessageWaitsForTheDisk(t *testing.T) {
	h := newHouse(t)
	for session, want := range map[string]string{"off": "on", "local": "local", "remote_apply": "remote_apply"} {
		tx := h.begin()
		if _, err := tx.Exec(h.ctx, "SET LOCAL synchronous_commit = "+session); err != nil {
			t.Fatal(err)
		}
		if err := h.table.Settle(h.ctx, tx, order("m1", "")); err != nil {
			t.Fatal(err)
		}
		var is string
		if err := tx.QueryRow(h.ctx, "SHOW synchronous_commit").Scan(&is); err != nil || is != want {
			t.Errorf("with %s in the session: %s, %v", session, is, err)
		}
		_ = tx.Rollback(h.ctx)
	}
}

func TestRowsAreSweptWhenTheirRetentionIsOver(t *testing.T) {
	h := newHouse(t)
	h.exec(`INSERT INTO shop.idem_inbox SELECT 'warehouse', 'message', 'old-' || n, '', clock_timestamp() - interval '31 days' FROM generate_series(1, 1200) n`)
	h.exec(`INSERT INTO shop.idem_inbox_failures SELECT 'warehouse', 'old-' || n, 1, 'x', clock_timestamp() - interval '31 days' FROM generate_series(1, 600) n`)
	h.mustOnce(order("m1", "payment-1"), "a", "a", true)
	if swept, err := h.table.Sweep(h.ctx, h.pool, inbox.DefaultRetention); swept != 1800 || err != nil {
		t.Errorf("%d are swept, %v", swept, err)
	}
	h.mustCount(2, "SELECT count(*) FROM shop.idem_inbox")
	h.mustCount(0, "SELECT count(*) FROM shop.idem_inbox_failures")
	if _, err := h.table.Sweep(h.ctx, h.pool, 0); err == nil {
		t.Error("no retention is taken for one")
	}
}

// Sweepers take rows away under those who mark and look for them.
func TestSweepingBeneathConsumersTakesNoMarkWithinItsRetention(t *testing.T) {
	for name, retention := range map[string]time.Duration{"at once": time.Microsecond, "within their retention": time.Minute} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			ctx, stop := context.WithCancel(h.ctx)
			var sweepers, consumers sync.WaitGroup
			for range 2 {
				sweepers.Go(func() {
					for ctx.Err() == nil {
						if _, err := h.table.Sweep(h.ctx, h.pool, retention); err != nil {
							t.Error(err)
						}
					}
				})
			}
			for range 8 {
				consumers.Go(func() {
					for i := range 100 {
						if _, _, err := h.once(order(fmt.Sprint("m", i), fmt.Sprint("payment-", i)), "x"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			consumers.Wait()
			stop()
			sweepers.Wait()
			if retention == time.Minute {
				h.mustCount(100, "SELECT count(*) FROM effects")
			}
		})
	}
}

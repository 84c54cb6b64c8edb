package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// atOnce runs n functions that begin together, and returns what they return.
func atOnce[T any](n int, do func(i int) T) []T {
	results, begin := make([]T, n), make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			results[i] = do(i)
		})
	}
	close(begin)
	all.Wait()
	return results
}

func TestFiftyRequestsWithOneKeyAreBookedOnce(t *testing.T) {
	t.Parallel()
	house := start(t)
	answers := atOnce(50, func(int) string {
		got, err := house.insist("k", payFor("1", "visa"))
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(got.status, " ", got.body)
	})
	booked := house.bookings(t, "1")
	if len(booked) != 1 {
		t.Fatalf("bookings: %v", booked)
	}
	want := fmt.Sprintf("201 {\"booking\":%q,\"order\":\"1\",\"cents\":1999}\n", booked[0].Booking)
	for _, got := range answers {
		if got != want {
			t.Errorf("an answer is %q, want %q", got, want)
		}
	}
}

// The table of the README: what is heard, how often the bank has booked.
func TestEveryCardEndsAsTheTableSays(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]+ \\| ([^|]+) \\| (\\d) \\|$").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 8 {
		t.Fatalf("only %d rows were found", len(rows))
	}
	house := start(t)
	for _, row := range rows { // one after the other: some kill payments
		card, hears, bookings := row[1], strings.Split(row[2], ", then "), row[3]
		var last answer
		for i, want := range hears {
			last = house.send(t, http.MethodPost, "/payments", "alice", card, payFor(card, card))
			got := strconv.Itoa(last.status)
			if reason := last.header.Get("Idempotent-Reason"); reason != "" {
				got += " " + reason
			}
			if got != want {
				t.Errorf("%s, request %d is answered %q (%s), the table says %q", card, i+1, got, last.body, want)
			}
		}
		again := house.send(t, http.MethodPost, "/payments", "alice", card, payFor(card, card))
		if again.status != last.status || again.body != last.body || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %d %q is not replayed but followed by %d %q", card, last.status, last.body, again.status, again.body)
		}
		if got := len(house.bookings(t, card)); strconv.Itoa(got) != bookings {
			t.Errorf("%s: there are %d bookings, the table says %s", card, got, bookings)
		}
	}
}

func TestCrashesInTheMiddleLeaveOneBookingEach(t *testing.T) {
	t.Parallel()
	house := start(t)
	for round := range 3 {
		cards := []string{"crash", "crash-early", "visa", "late"}
		errs := atOnce(len(cards), func(i int) error {
			order := fmt.Sprintf("%d-%s", round, cards[i])
			first, err := house.insist(order, payFor(order, cards[i]))
			if err != nil || first.status != http.StatusCreated {
				return fmt.Errorf("%s: %d %s: %w", order, first.status, first.body, err)
			}
			again, err := house.insist(order, payFor(order, cards[i]))
			if err != nil || again.body != first.body {
				return fmt.Errorf("%s: a later retry hears %q, the first answer was %q: %w", order, again.body, first.body, err)
			}
			return nil
		})
		for i, err := range errs {
			if err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			if booked := house.bookings(t, fmt.Sprintf("%d-%s", round, cards[i])); len(booked) != 1 {
				t.Errorf("round %d, %s: bookings: %v", round, cards[i], booked)
			}
		}
	}
}

// Whatever dies, and when: each order is booked once, and its callers hear of it.
func TestAnyProcessButTheBankMayBeKilledWhilePaymentsAreMade(t *testing.T) {
	t.Parallel()
	const callers, each, before = 8, 10, 20
	house := start(t)
	for _, victim := range []string{"payments", "front", "idemd"} {
		pid, answered := house.pid(t, victim), make(chan struct{}, callers*each)
		go func() { // with a quarter answered and a payment of each caller under way
			for range before {
				<-answered
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}()
		errs := atOnce(callers, func(caller int) error {
			for i := range each {
				order := fmt.Sprintf("%s-%d-%d", victim, caller, i)
				got, err := house.insist(order, payFor(order, "visa"))
				if answered <- struct{}{}; err != nil || got.status != http.StatusCreated {
					return fmt.Errorf("%s: %d %s: %w", order, got.status, got.body, err)
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		for i := range callers * each {
			order := fmt.Sprintf("%s-%d-%d", victim, i/each, i%each)
			if booked := house.bookings(t, order); len(booked) != 1 {
				t.Errorf("%s was killed: bookings of order %s: %v", victim, order, booked)
			}
		}
		house.restarted(t, victim, pid)
	}
}

// Twenty requests have read version 1. One wins, the others are told the current version,
// and each hears the same again.
func TestOfManyRequestsOnOneRowOneWinsAndTheOthersHearTheVersion(t *testing.T) {
	t.Parallel()
	house := start(t)
	change := func(i int) answer {
		got, err := house.try(http.MethodPatch, "/accounts/acme", "alice", fmt.Sprint("change-", i), fmt.Sprintf(`{"limit_cents": %d, "version": 1}`, i))
		if err != nil {
			return answer{body: err.Error()}
		}
		return got
	}
	first := atOnce(20, change)
	won := -1
	for i, got := range first {
		switch got.status {
		case http.StatusOK:
			if won >= 0 {
				t.Errorf("requests %d and %d have both won", won, i)
			}
			won = i
		case http.StatusConflict:
			if !strings.Contains(got.body, `"current_version":2`) {
				t.Errorf("request %d is not told the current version: %s", i, got.body)
			}
		default:
			t.Errorf("request %d is answered %d %s", i, got.status, got.body)
		}
	}
	if won < 0 {
		t.Fatal("nobody has won")
	}
	for i, got := range atOnce(20, change) {
		if got.status != first[i].status || got.body != first[i].body || got.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("request %d was answered %d %q, and its retry %d %q", i, first[i].status, first[i].body, got.status, got.body)
		}
	}
	want := fmt.Sprintf("{\"id\":\"acme\",\"limit_cents\":%d,\"version\":2}\n", won)
	if got := house.send(t, http.MethodGet, "/accounts/acme", "alice", "", ""); got.body != want {
		t.Errorf("the account is %s, want %s", got.body, want)
	}
}

// What can't be meant takes no key: the corrected request may come with it.
func TestWhatIsRefusedBeforeItBeginsTakesNoKey(t *testing.T) {
	t.Parallel()
	house := start(t)
	for _, wrong := range []struct {
		name, user, body string
		status           int
	}{
		{"no JSON", "alice", "tea", http.StatusBadRequest},
		{"an unknown member", "alice", `{"order": "1", "cents": 5, "card": "visa", "tip": 1}`, http.StatusBadRequest},
		{"nothing to pay", "alice", `{"order": "1", "cents": 0, "card": "visa"}`, http.StatusBadRequest},
		{"a member by two names", "alice", `{"order": "1", "cents": 5, "Cents": 500, "card": "visa"}`, http.StatusBadRequest},
		{"an order too long", "alice", payFor(strings.Repeat("9", 65), "visa"), http.StatusBadRequest},
		{"a body too large", "alice", strings.Repeat(" ", 1<<17), http.StatusRequestEntityTooLarge},
		{"nobody", "", payFor("1", "visa"), http.StatusUnauthorized},
	} {
		if got := house.send(t, http.MethodPost, "/payments", wrong.user, "k", wrong.body); got.status != wrong.status {
			t.Errorf("%s: %d %s, want %d", wrong.name, got.status, got.body, wrong.status)
		}
	}
	if got := house.send(t, http.MethodPost, "/payments", "alice", "k", payFor("1", "visa")); got.status != http.StatusCreated {
		t.Errorf("the corrected request is answered %d %s", got.status, got.body)
	}
	if got := house.send(t, http.MethodPatch, "/accounts/nobody", "alice", "n", `{"limit_cents": 1, "version": 1}`); got.status != http.StatusNotFound {
		t.Errorf("an account that is not there: %d %s", got.status, got.body)
	}
}

// What is logged is short, and has nobody's session and no request in it.
func TestLogsAreShortAndTellNothingOfTheCallers(t *testing.T) {
	t.Parallel()
	house := start(t)
	for range 2 {
		house.send(t, http.MethodPost, "/payments", "a-session-of-alice", "k", payFor("1", "crash"))
	}
	text := house.log.String()
	if !strings.Contains(text, "the bank was asked") {
		t.Error("the log does not tell that the bank was asked")
	}
	for _, private := range []string{"a-session-of-alice", "cents", "1999"} {
		if strings.Contains(text, private) {
			t.Errorf("%q is in the log", private)
		}
	}
	longest := slices.MaxFunc(strings.Split(text, "\n"), func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	if len(longest) > 300 {
		t.Errorf("a line has %d bytes: %s", len(longest), longest)
	}
}

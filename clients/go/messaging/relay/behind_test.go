package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// What stands behind others must not wait for them: here are the ways in which it could.

// typed are n events of one aggregate type, and so of one topic, each of its own aggregate.
func typed(kind string, n int) (all []outbox.Event) {
	for i := range n {
		all = append(all, outbox.Event{AggregateType: kind, AggregateID: fmt.Sprintf("%06d", i), Type: "T", Payload: fmt.Appendf(nil, "%s%d", kind, i)})
	}
	return all
}

func TestATopicThatIsRefusedHoldsBackNoOther(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.broker.refusing(func(topic string, _ *message.Message) error {
			if topic == "outbox.event.audit" {
				return errors.New("no response from stream")
			}
			return nil
		})
		h.add(typed("audit", 700)...)
		h.add(typed("order", 1)...)
		h.add(typed("audit", 800)[700:]...)
		c := h.settings()
		c.Backoff = nil // as they all are after a second again, those in front come again and again
		h.run(c)
		h.until("the one between them is out", h.broker.took("order0"))
	})
}

func TestASlowAggregateHoldsBackNoOther(t *testing.T) {
	bothOrders(t, func(h *house) {
		begun, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		h.broker.refusing(func(_ string, m *message.Message) error {
			if m.Metadata[outbox.AggregateIDHeader] == "slow" {
				once.Do(func() { close(begun) })
				<-release
			}
			return nil
		})
		h.add(about("slow", 1), about("slow", 2))
		h.run(h.settings())
		<-begun
		h.add(about("quick", 3))
		h.until("the other one is out, and marked, before the slow one", func() bool { return h.broker.took("3")() && h.stats().Pending == 2 })
		close(release)
		h.drained()
		if got := fmt.Sprint(h.broker.payloads("slow")); h.config.Order == outbox.PerAggregate && got != "[1 2]" {
			t.Errorf("arrived: %s", got)
		}
		if n := h.broker.tries("1"); n != 1 {
			t.Errorf("the slow one was sent %d times", n)
		}
	})
}

func TestARelayThatIsStoppedMarksWhatIsSlow(t *testing.T) {
	h := newHouse(t, outbox.None)
	release := make(chan struct{})
	h.broker.refusing(func(_ string, m *message.Message) error {
		if string(m.Payload) == "1" {
			<-release
		}
		return nil
	})
	h.add(about("slow", 1), about("quick", 2))
	ctx, cancel := context.WithCancel(h.ctx)
	wait := h.runUntil(ctx, h.settings())
	h.until("the rest is marked", func() bool { return h.stats().Pending == 1 })
	cancel()
	close(release)
	wait()
	if s := h.stats(); s.Pending != 0 {
		t.Errorf("%d are pending", s.Pending)
	}
}

func TestARowThatSomebodyHoldsHoldsBackItsAggregateOnly(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.add(about("a", 1), about("a", 2), about("a", 3), about("b", 4))
		tx, err := h.pool.Begin(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(h.ctx) }()
		if _, err := tx.Exec(h.ctx, "SELECT 1 FROM shop.outbox WHERE payload = '2' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		h.run(h.settings())
		h.until("what is not held is out", func() bool { return h.broker.took("1")() && h.broker.took("4")() })
		if err := tx.Rollback(h.ctx); err != nil {
			t.Fatal(err)
		}
		h.drained()
		if got := fmt.Sprint(h.broker.payloads("a")); h.config.Order == outbox.PerAggregate && got != "[1 2 3]" {
			t.Errorf("arrived: %s", got)
		}
	})
}

// Scenario 76, where the relay never comes to the end of what is pending.
func TestARowThatCommitsLateDoesNotWaitForAWholeBacklog(t *testing.T) {
	h := newHouse(t, outbox.None)
	tx, err := h.pool.Begin(h.ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := about("late", 0)
	late.Payload = []byte("late")
	if err := h.outbox.Add(h.ctx, tx, late); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		h.add(many(1000)...)
	}
	h.broker.refusing(func(string, *message.Message) error { // a broker that takes a little while
		timer := time.NewTimer(5 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return nil
	})
	c := h.settings()
	c.Batch, c.Workers = 20, 10
	h.run(c)
	h.until("some are out", func() bool { return len(h.broker.payloads("")) > 100 })
	if err := tx.Commit(h.ctx); err != nil {
		t.Fatal(err)
	}
	h.until("the late one is out", h.broker.took("late"))
	if s := h.stats(); s.Pending == 0 {
		t.Error("it came after all others")
	}
}

// Its claim is over, and another relay has the event: what it writes of it is not true any more.
func TestARelayWhoseClaimIsOverWritesNoFailure(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	first, release, second, go2 := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	h.broker.refusing(func(string, *message.Message) error {
		if h.broker.tries("1") == 1 {
			close(first)
			<-release
			return errors.New("too late")
		}
		close(second)
		<-go2
		return nil
	})
	h.add(about("a", 1))
	c := h.settings()
	c.Alive = func(context.Context) error { return nil } // failures count
	stop := h.run(c)
	<-first
	h.exec("UPDATE shop.outbox SET claimed_until = clock_timestamp()")
	h.run(c)
	<-second
	close(release)
	stop()
	var attempts int
	var claimed bool
	if err := h.pool.QueryRow(h.ctx, "SELECT attempts, claimed_until > clock_timestamp() FROM shop.outbox").Scan(&attempts, &claimed); err != nil {
		t.Fatal(err)
	}
	if attempts != 0 || !claimed {
		t.Errorf("%d attempts, still the other's: %v", attempts, claimed)
	}
	close(go2)
	h.drained()
}

func TestThePauseAfterEachAttemptIsItsOwn(t *testing.T) {
	h := newHouse(t, outbox.None)
	h.broker.refusing(func(string, *message.Message) error { return errors.New("no") })
	h.add(about("a", 1))
	c := h.settings()
	c.Attempts, c.Alive = 4, func(context.Context) error { return nil }
	var mu sync.Mutex
	var asked []int
	c.Backoff = func(n int) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, n)
		return time.Millisecond
	}
	h.run(c)
	h.until("it is parked", func() bool { return h.stats().Parked == 1 })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(slices.Compact(asked), []int{1, 2, 3, 4}) {
		t.Errorf("asked for the pauses after attempts %v", asked)
	}
}

// An administrator's default must not make relays collide.
func TestItWorksWhateverIsolationIsTheDefault(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
		h.pool.Reset()
		for range 10 {
			h.add(many(20)...)
		}
		var log lockedBuffer
		for range 3 {
			c := h.settings()
			c.Batch, c.Logger = 5, textLogger(&log)
			h.run(c)
		}
		h.drained()
		if text := log.String(); text != "" {
			t.Errorf("the log says\n%s", text)
		}
	})
}

func TestItListensWithTheCredentialsOfTheMoment(t *testing.T) {
	server := postgres.Server(t)
	h := newHouseOn(t, server.DSN(server.Database(t, "")), outbox.Config{Schema: "shop", Order: outbox.None, Notify: true})
	c := h.settings()
	c.Poll = time.Minute
	right := c.Postgres.ConnConfig.Database
	c.Postgres.ConnConfig.Database = "nowhere"
	c.Postgres.BeforeConnect = func(_ context.Context, settings *pgx.ConnConfig) error {
		settings.Database = right
		return nil
	}
	h.run(c)
	h.until("it listens", func() bool {
		var n int
		if err := h.pool.QueryRow(h.ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'").Scan(&n); err != nil {
			h.Fatal(err)
		}
		return n == 1
	})
}

package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/clients/go/messaging/relay"
)

func TestAnEventArrivesAsItWasAddedUnderItsOwnId(t *testing.T) {
	bothOrders(t, func(h *house) {
		e := about("order-1", 1)
		e.ID = "0190a2c4-7b1e-7c3d-8a4f-0123456789ab"
		e.Headers = map[string]string{"tenant": "acme"}
		h.add(e)
		h.run(h.settings())
		h.drained()
		got := h.broker.all()
		if len(got) != 1 {
			t.Fatalf("%d messages", len(got))
		}
		want := message.Metadata{
			"tenant": "acme", outbox.AggregateTypeHeader: "order", outbox.AggregateIDHeader: "order-1", outbox.TypeHeader: "OrderPlaced",
			"topic": "outbox.event.order",
		}
		if m := got[0]; m.UUID != e.ID || string(m.Payload) != "1" || fmt.Sprint(m.Metadata) != fmt.Sprint(want) {
			t.Errorf("arrived as %s %q %v", m.UUID, m.Payload, m.Metadata)
		}
	})
}

func TestEventsOfOneAggregateArriveInTheOrderOfTheirAdding(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	const aggregates, each = 20, 50
	for n := range each {
		var events []outbox.Event
		for a := range aggregates {
			events = append(events, about(fmt.Sprint("a", a), n))
		}
		h.add(events...)
	}
	for range 2 {
		c := h.settings()
		c.Batch = 100
		h.run(c)
	}
	h.drained()
	for a := range aggregates {
		got := h.broker.payloads(fmt.Sprint("a", a))
		for n := range each {
			if n >= len(got) || got[n] != fmt.Sprint(n) {
				t.Fatalf("aggregate %d: %v", a, got)
			}
		}
	}
}

// Scenario 84.
func TestAThousandEventsOfOneTransactionGoOutOnceEachWithTwoRelays(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.add(many(1000)...)
		for range 2 {
			c := h.settings()
			c.Batch = 37
			h.run(c)
		}
		h.drained()
		got := h.broker.payloads("")
		slices.Sort(got)
		if len(got) != 1000 || len(slices.Compact(got)) != 1000 {
			t.Errorf("%d messages, %d different ones", len(got), len(slices.Compact(got)))
		}
	})
}

// Scenario 76.
func TestARowThatCommitsLateIsNotOvertakenForGood(t *testing.T) {
	bothOrders(t, func(h *house) {
		late, err := h.pool.Begin(h.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.outbox.Add(h.ctx, late, about("late", 1)); err != nil {
			t.Fatal(err)
		}
		h.add(about("early", 2))
		h.run(h.settings())
		h.until("the second one is out", h.broker.took("2"))
		if err := late.Commit(h.ctx); err != nil {
			t.Fatal(err)
		}
		h.until("the first one is out", h.broker.took("1"))
	})
}

func TestATransactionThatRollsBackSendsNothing(t *testing.T) {
	bothOrders(t, func(h *house) {
		rollback := errors.New("sold out")
		err := pgx.BeginFunc(h.ctx, h.pool, func(tx pgx.Tx) error {
			return errors.Join(h.outbox.Add(h.ctx, tx, about("order-1", 1)), rollback)
		})
		if !errors.Is(err, rollback) {
			t.Fatal(err)
		}
		h.add(about("order-2", 2))
		h.run(h.settings())
		h.drained()
		if got := h.broker.payloads(""); fmt.Sprint(got) != "[2]" {
			t.Errorf("sent: %v", got)
		}
	})
}

// Scenario 82.
func TestTenPoisonEventsInFrontDoNotKeepAGoodOneAndAreParkedAfterTheirOwnAttempts(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.add(many(11)...)
		h.broker.refusing(func(_ string, m *message.Message) error {
			if len(m.Payload) == 1 {
				return errors.New("no")
			}
			return nil
		})
		c := h.settings()
		c.Batch, c.Attempts = 10, 3
		h.run(c)
		h.until("the good one is out", h.broker.took("10"))
		for i := range 10 {
			if n := h.broker.tries(fmt.Sprint(i)); n > 2 {
				t.Errorf("before the good one was out, %d was tried %d times", i, n)
			}
		}
		// Each further good one tells that the broker is there.
		for n := 11; h.stats().Parked < 10; n++ {
			h.add(about(fmt.Sprint("a", n), n))
			h.until("it is out", h.broker.took(fmt.Sprint(n)))
		}
		for _, row := range h.parked() {
			if row.Attempts != 3 || row.LastError != "no" {
				t.Errorf("parked after %d attempts with %q", row.Attempts, row.LastError)
			}
		}
	})
}

func TestWhileTheBrokerIsAwayNobodysAttemptsAreUsedUp(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.add(many(5)...)
		h.broker.refusing(func(string, *message.Message) error { return errors.New("connection refused") })
		c := h.settings()
		c.Attempts = 2
		h.run(c)
		h.until("one was tried more often than an event may fail", func() bool {
			return slices.ContainsFunc([]string{"0", "1", "2", "3", "4"}, func(p string) bool { return h.broker.tries(p) > 4 })
		})
		h.broker.refusing(nil)
		h.drained()
		if s := h.stats(); s.Parked != 0 || len(h.broker.payloads("")) != 5 {
			t.Errorf("%d are parked, %d arrived", s.Parked, len(h.broker.payloads("")))
		}
	})
}

func TestWhatIsDeclaredAsPoisonIsParkedAtOnceAndAnOutageCountsAgainstNobody(t *testing.T) {
	bothOrders(t, func(h *house) {
		tooLarge, refused := errors.New("too large"), errors.New("refused")
		h.add(about("a", 1), about("b", 2), about("c", 3))
		h.broker.refusing(func(_ string, m *message.Message) error {
			switch n := h.broker.tries(string(m.Payload)); {
			case string(m.Payload) == "1":
				return tooLarge
			case string(m.Payload) == "2" && n <= 5:
				return refused
			}
			return nil
		})
		c := h.settings()
		c.Attempts = 2
		c.Classify = func(err error) relay.Failure {
			switch {
			case errors.Is(err, tooLarge):
				return relay.Poison
			case errors.Is(err, refused):
				return relay.Outage
			}
			return relay.Unclear
		}
		h.run(c)
		h.drained()
		if rows := h.parked(); len(rows) != 1 || rows[0].AggregateID != "a" || h.broker.tries("1") != 1 || h.broker.tries("2") != 6 {
			t.Errorf("parked: %v; tried %d and %d times", rows, h.broker.tries("1"), h.broker.tries("2"))
		}
	})
}

func TestALonePoisonEventIsParkedWhereAliveVouchesForTheBroker(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.add(about("a", 1))
	h.broker.refusing(func(string, *message.Message) error { return errors.New("no") })
	c := h.settings()
	c.Attempts = 3
	c.Alive = func(context.Context) error { return nil }
	h.run(c)
	h.until("it is parked", func() bool { return h.stats().Parked == 1 })
	if n := h.broker.tries("1"); n != 3 {
		t.Errorf("after %d tries", n)
	}
}

func TestAFailedEventHoldsBackItsAggregateOnlyUntilItIsParked(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.broker.refusing(func(_ string, m *message.Message) error {
		if string(m.Payload) == "1" {
			return errors.New("no")
		}
		return nil
	})
	h.add(about("a", 1), about("a", 2), about("b", 3))
	c := h.settings()
	c.Attempts = 3
	h.run(c)
	h.until("the other aggregate's is out", h.broker.took("3"))
	for n := 4; !h.broker.took("2")(); n++ {
		h.add(about("c", n))
		h.until("it is out", h.broker.took(fmt.Sprint(n)))
	}
	if s := h.stats(); s.Parked != 1 {
		t.Errorf("%d are parked", s.Parked)
	}
}

func TestABatchHoldsNoMoreThanSixteenMebibytesAndOneEvent(t *testing.T) {
	bothOrders(t, func(h *house) {
		h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload)
			SELECT gen_random_uuid(), 'order', (n % 3)::text, 'Placed', convert_to(repeat('x', 1 << 20), 'UTF8') || convert_to(lpad(n::text, 3, '0'), 'UTF8')
			FROM generate_series(1, 40) n`)
		h.broker.refusing(func(string, *message.Message) error {
			if n := h.claims(); n > 17 {
				h.Errorf("%d claimed", n)
			}
			return nil
		})
		h.run(h.settings())
		h.drained()
		if n := len(h.broker.payloads("")); n != 40 {
			h.Errorf("%d arrived", n)
		}
		for a := range 3 {
			if got := h.broker.payloads(fmt.Sprint(a)); h.config.Order == outbox.PerAggregate && !slices.IsSorted(got) {
				h.Errorf("aggregate %d is not in order", a)
			}
		}
	})
}

func TestAggregatesWhoseNamesKeepGrowingDoNotStarveThoseBefore(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	const names = 30
	n := 0 // one worker: no two at once
	h.broker.refusing(func(string, *message.Message) error {
		if n++; n == 1 {
			h.add(about("a", 1000))
		}
		if n < names {
			h.add(about(fmt.Sprintf("b%03d", n), n))
		}
		return nil
	})
	h.add(about("a", 0))
	c := h.settings()
	c.Batch, c.Workers = 1, 1
	h.run(c)
	h.until("all are out", func() bool { return len(h.broker.payloads("")) == names+1 })
	if place := slices.Index(h.broker.payloads(""), "1000"); place > 5 {
		t.Errorf("the aggregate's second event went out as number %d", place)
	}
}

func TestAnEventBehindManyThatAreHeldBackGoesOut(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	var held []outbox.Event
	for i := range 900 {
		held = append(held, about("held", i))
	}
	h.add(held...)
	h.add(about("free", 1000))
	h.broker.refusing(func(_ string, m *message.Message) error {
		if m.Metadata[outbox.AggregateIDHeader] == "held" {
			return errors.New("no")
		}
		return nil
	})
	c := h.settings()
	c.Batch, c.Backoff = 10, func(int) time.Duration { return time.Hour }
	h.run(c)
	h.until("the free one is out", h.broker.took("1000"))
	if n := h.broker.tries("0"); n != 1 {
		t.Errorf("the first one was tried %d times, its pause is an hour", n)
	}
}

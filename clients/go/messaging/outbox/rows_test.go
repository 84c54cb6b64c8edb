package outbox_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// park parks what is of a type.
func (h *house) park(eventType string) {
	h.Helper()
	h.exec("UPDATE shop.outbox SET state = 2, attempts = 10, last_error = 'no' WHERE type = $1", eventType)
}

func TestWhatIsParkedIsListedPageByPageInOrder(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	for i := range 5 {
		h.add(about("a", fmt.Sprint(i)))
		h.park(fmt.Sprint(i))
	}
	var types []string
	for after := int64(0); ; {
		rows, err := h.outbox.List(h.ctx, h.pool, outbox.Parked, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			if types, after = append(types, row.Type), row.Position; row.LastError != "no" || row.Attempts != 10 {
				t.Errorf("%+v", row)
			}
		}
	}
	if fmt.Sprint(types) != "[0 1 2 3 4]" {
		t.Errorf("%v", types)
	}
	for _, limit := range []int{0, outbox.MaxList + 1} {
		if _, err := h.outbox.List(h.ctx, h.pool, outbox.Parked, 0, limit); err == nil {
			t.Errorf("a limit of %d is taken", limit)
		}
	}
	if _, err := h.outbox.List(h.ctx, h.pool, outbox.Sent, 0, 1); err == nil {
		t.Error("what is sent is listed")
	}
}

func TestARedrivenEventGoesToTheEndOfTheLineWithAllItsAttempts(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.add(about("a", "bad"), about("a", "worse"), about("a", "good"))
	h.park("bad")
	h.park("worse")
	id := one[string](h, "SELECT id::text FROM shop.outbox WHERE type = 'bad'")
	good := one[string](h, "SELECT id::text FROM shop.outbox WHERE type = 'good'")
	if n, err := h.outbox.Redrive(h.ctx, h.pool, id, good, id); n != 1 || err != nil {
		t.Errorf("%d are redriven, %v", n, err)
	}
	if got := fmt.Sprint(h.list(outbox.Pending)); got != "[good bad]" {
		t.Errorf("pending: %v", got)
	}
	if n := one[int](h, "SELECT attempts FROM shop.outbox WHERE type = 'bad'"); n != 0 {
		t.Errorf("with %d attempts", n)
	}
	if got := fmt.Sprint(h.list(outbox.Parked)); got != "[worse]" {
		t.Errorf("parked: %v", got)
	}
}

func TestAllParkedEventsOfATypeAreRedrivenInTheirOrder(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state)
		SELECT gen_random_uuid(), 'order', 'a', CASE WHEN n % 2 = 0 THEN 'even' ELSE 'odd' END, convert_to(n::text, 'UTF8'), 2 FROM generate_series(1, 2400) n`)
	if n, err := h.outbox.RedriveAll(h.ctx, h.pool, "even"); n != 1200 || err != nil {
		t.Errorf("%d are redriven, %v", n, err)
	}
	if !one[bool](h, `SELECT bool_and(n > before) FROM (SELECT n, lag(n, 1, 0) OVER (ORDER BY position) AS before
		FROM (SELECT position, convert_from(payload, 'UTF8')::int AS n FROM shop.outbox WHERE state = 0) AS a) AS b`) {
		t.Error("not in their order")
	}
	if n, err := h.outbox.RedriveAll(h.ctx, h.pool, ""); n != 1200 || err != nil {
		t.Errorf("%d are redriven, %v", n, err)
	}
}

func TestEventsThatAreRedrivenByIdKeepTheirOrderWhateverOrderTheIdsAreIn(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state)
		SELECT gen_random_uuid(), 'order', 'a', 'T', convert_to(n::text, 'UTF8'), 2 FROM generate_series(1, 1200) n`)
	ids := one[[]string](h, "SELECT array_agg(id::text ORDER BY id) FROM shop.outbox") // random ones
	if n, err := h.outbox.Redrive(h.ctx, h.pool, ids...); n != 1200 || err != nil {
		t.Errorf("%d are redriven, %v", n, err)
	}
	if !one[bool](h, `SELECT bool_and(n > before) FROM (SELECT n, lag(n, 1, 0) OVER (ORDER BY position) AS before
		FROM (SELECT position, convert_from(payload, 'UTF8')::int AS n FROM shop.outbox WHERE state = 0) AS a) AS b`) {
		t.Error("not in their order")
	}
}

func TestSweepRemovesWhatWasSentLongAgoAndNothingElse(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state, created_at, sent_at)
		SELECT gen_random_uuid(), 'order', 'a', 'old ' || s, '', s, clock_timestamp() - interval '30 days', CASE WHEN s = 1 THEN clock_timestamp() - interval '8 days' END
		FROM generate_series(0, 2) s, generate_series(1, 600)`)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state, created_at, sent_at)
		VALUES (gen_random_uuid(), 'order', 'a', 'young', '', 1, clock_timestamp() - interval '30 days', clock_timestamp())`)
	if n, err := h.outbox.Sweep(h.ctx, h.pool, outbox.DefaultRetention); n != 600 || err != nil {
		t.Errorf("%d are swept, %v", n, err)
	}
	if n := one[int](h, "SELECT count(*) FROM shop.outbox WHERE type <> 'old 1'"); n != 1201 {
		t.Errorf("%d are left", n)
	}
	if _, err := h.outbox.Sweep(h.ctx, h.pool, 0); err == nil {
		t.Error("no retention is taken for one")
	}
}

func TestSweepByAgeRemovesWhatIsOldWhetherItWasSentOrNot(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state, created_at)
		SELECT gen_random_uuid(), 'order', 'a', s::text, '', s, clock_timestamp() - interval '3 hours' FROM (VALUES (0), (2)) AS states (s), generate_series(1, 1200)`)
	h.add(about("a", "young"))
	if n, err := h.outbox.SweepByAge(h.ctx, h.pool, 2*time.Hour); n != 1200 || err != nil {
		t.Errorf("%d are swept, %v", n, err)
	}
	if got := fmt.Sprint(h.list(outbox.Pending)); got != "[young]" {
		t.Errorf("pending: %v", got)
	}
	if s, err := h.outbox.Stats(h.ctx, h.pool); err != nil || s.Parked != 1200 || s.Pending != 1 || s.OldestPending <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSeveralMaySweepAndRedriveAtOnce(t *testing.T) {
	h := newHouse(t, outbox.PerAggregate)
	h.exec(`INSERT INTO shop.outbox (id, aggregatetype, aggregateid, type, payload, state, sent_at)
		SELECT gen_random_uuid(), 'order', 'a', 'x', '', s, clock_timestamp() - interval '8 days' FROM (VALUES (1), (2)) AS states (s), generate_series(1, 3000)`)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var swept, redriven int64
	for range 4 {
		workers.Go(func() {
			s, err := h.outbox.Sweep(h.ctx, h.pool, outbox.DefaultRetention)
			if err != nil {
				t.Error(err)
			}
			r, err := h.outbox.RedriveAll(h.ctx, h.pool, "")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			swept, redriven = swept+s, redriven+r
		})
	}
	workers.Wait()
	if swept != 3000 || redriven > 3000 {
		t.Errorf("%d are swept, %d redriven", swept, redriven)
	}
	if n := one[int](h, "SELECT count(*) FROM shop.outbox"); n != 3000 {
		t.Errorf("%d are left", n)
	}
}

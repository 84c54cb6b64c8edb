package main

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// The contenders are this test binary, run again.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(exitCode(serve(role)))
	}
	os.Exit(m.Run())
}

func TestAShortRunMeasuresEachContender(t *testing.T) {
	p := fullPlan()
	p.Callers, p.Pools, p.Rounds, p.WarmUp, p.Window, p.Waiters, p.Expired = []int{1, 70}, []int{2}, 1, 20*time.Millisecond, 200*time.Millisecond, 50, 0
	found, err := run(t.Context(), p, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Rows) != len(p.Callers)*len(p.Contenders) {
		t.Fatalf("%d rows were measured", len(found.Rows))
	}
	for _, at := range found.Rows {
		if at.Rate.Median <= 0 || at.P50 <= 0 || at.P99 < at.P50 || at.ToEcho == 0 || at.ToPgx == 0 {
			t.Errorf("%v, %d callers: %+v", at.setting, at.Callers, at)
		}
	}
}

func TestRatiosAreThoseOfMediansToTheBestYardstick(t *testing.T) {
	p := plan{Contenders: []string{echo, pgx, embedded, postgres}, Callers: []int{256}, Pools: []int{8, 32}, Rounds: 3}
	rates := map[setting][]float64{
		{Contender: echo, Callers: 256}:          {900, 1000, 5000},
		{Contender: pgx, Callers: 256, Pool: 8}:  {90, 100, 700},
		{Contender: pgx, Callers: 256, Pool: 32}: {200, 190, 210},
		{Contender: embedded, Callers: 256}:      {390, 1, 400},
		{Contender: postgres, Callers: 256}:      {360, 370, 350},
	}
	samples := make(map[setting][]sample)
	for s, values := range rates {
		for _, rate := range values {
			samples[s] = append(samples[s], sample{Rate: rate})
		}
	}
	var r report
	r.fill(p, samples)
	for _, b := range r.Bars {
		want, reached := 0.39, false
		if b.Contender == postgres {
			want, reached = 1.8, true
		}
		if math.Abs(b.Got-want) > 1e-9 || b.reached() != reached {
			t.Errorf("%s is %v × %s, want %v", b.Contender, b.Got, b.Yardstick, want)
		}
	}
	if len(r.Bars) != 2 {
		t.Errorf("bars: %+v", r.Bars)
	}
	table := r.markdown()
	for _, want := range []string{"pgx over 32 connections | 200 (190–210)", "| 390 (1–400) |", "bar is 0.65, the aim 0.80: MISSED", "bar is 1.80, the aim 2.50: reached"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if strings.Contains(table, "over 8 connections") {
		t.Error("the table shows a number of connections that is not the best")
	}
}

func TestASampleCountsTheWindowOnly(t *testing.T) {
	begin := time.Now()
	w := window{begin, begin.Add(time.Second)}
	for after, counts := range map[time.Duration]bool{-1: false, 0: true, time.Second - 1: true, time.Second: false} {
		if w.holds(lap{ended: begin.Add(after)}) != counts {
			t.Errorf("a cycle that ended %v after the begin: counted %v", after, !counts)
		}
	}
	took := make([]time.Duration, 2000)
	for i := range took {
		took[i] = time.Duration(i+1) * time.Microsecond
	}
	s := summarise(took, 4*time.Second, usage{client: time.Second, server: 3 * time.Second, machine: 4 * time.Second})
	if s.Rate != 500 || s.P50 != 1001*time.Microsecond || s.P99 != 1981*time.Microsecond {
		t.Errorf("got %+v", s)
	}
	if s.Client != 0.5 || s.Server != 1.5 || s.Others != 0 {
		t.Errorf("CPU: got %+v", s)
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	for want, values := range map[float64][]float64{3: {9, 1, 3}, 4: {5, 1, 3, 9}, 7: {7}} {
		if got := median(values); got != want {
			t.Errorf("median of %v is %v", values, got)
		}
	}
}

func TestEveryRoundMeasuresEverythingOnce(t *testing.T) {
	for _, p := range []plan{fullPlan(), quickPlan()} {
		var first []setting
		for n := range p.Rounds {
			order := p.round(n)
			if first == nil {
				first = order
			} else if slices.Equal(order, first) {
				t.Error("two rounds have one order")
			}
			for _, s := range p.settings() {
				if len(order) != len(p.settings()) || !slices.Contains(order, s) {
					t.Errorf("round %d misses %v", n, s)
				}
			}
		}
	}
}

func TestAnUnknownContenderIsRefused(t *testing.T) {
	p := fullPlan()
	if p.narrow("redis", "") == nil || p.narrow("", "many") == nil || p.narrow("", "0") == nil {
		t.Error("nonsense was taken")
	}
	if err := p.narrow(echo, "4,8"); err != nil || len(p.settings()) != 2 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestOnlyWhatIsBetweenTheMarkersIsReplaced(t *testing.T) {
	page := "before\n" + beginMarker + "\nold\n" + endMarker + "\nafter\n"
	got, err := replaceBetweenMarkers(page, "new\n")
	if want := "before\n" + beginMarker + "\nnew\n" + endMarker + "\nafter\n"; err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := replaceBetweenMarkers("no markers", "new"); err == nil {
		t.Error("a page without markers was taken")
	}
}

func TestAFailingCycleEndsTheRun(t *testing.T) {
	all := startCallers(t.Context(), failing{}, 3)
	if _, err := all.stop(window{time.Now().Add(-time.Hour), time.Now().Add(time.Hour)}); err == nil {
		t.Error("no error")
	}
}

type failing struct{}

func (failing) cycle(context.Context, operation) error { return os.ErrInvalid }
func (failing) close()                                 {}

func TestAShortRunDrainsAnOutboxInEachWay(t *testing.T) {
	table, err := measureOutbox(t.Context(), drains(0.02), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drains(1) {
		if strings.Count(table, "| "+d.name+" |") != 1 {
			t.Errorf("%s is not in\n%s", d.name, table)
		}
	}
}

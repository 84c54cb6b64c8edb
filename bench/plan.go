package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The contenders.
const (
	echo     = "echo"
	pgx      = "pgx"
	embedded = "idemd embedded"
	postgres = "idemd PostgreSQL"
	// The same daemons, called by the Go client as it is by default: what comes together is
	// sent together.
	embeddedCoalesced = "idemd embedded, coalesced"
	postgresCoalesced = "idemd PostgreSQL, coalesced"
)

// servedBy is the contender whose server a contender calls.
func servedBy(contender string) string { return strings.TrimSuffix(contender, ", coalesced") }

func coalesced(contender string) bool { return servedBy(contender) != contender }

// plan is what is measured and for how long.
type plan struct {
	Contenders []string      `json:"contenders"`
	Callers    []int         `json:"callers"`
	Pools      []int         `json:"pgx_pools"` // connections; the best counts
	Rounds     int           `json:"rounds"`
	WarmUp     time.Duration `json:"warm_up_ns"`
	Window     time.Duration `json:"window_ns"`
	Waiters    int           `json:"waiters"` // zero = waiting is not measured
	Expired    int           `json:"expired"` // records swept in a cycle; zero = sweeping is not measured
}

func fullPlan() plan {
	return plan{
		Contenders: []string{echo, pgx, embedded, embeddedCoalesced, postgres, postgresCoalesced}, Callers: []int{1, 64, 256}, Pools: []int{8, 32, 64},
		Rounds: 9, WarmUp: 300 * time.Millisecond, Window: time.Second, Waiters: 10_000, Expired: 1_000_000,
	}
}

func quickPlan() plan {
	p := fullPlan()
	p.Rounds, p.WarmUp, p.Window = 2, 200*time.Millisecond, 600*time.Millisecond
	p.Waiters, p.Expired = 2000, 0
	return p
}

// narrow leaves out what was not asked for; empty = everything.
func (p *plan) narrow(only, callers string) error {
	if only != "" {
		var wanted []string
		for name := range strings.SplitSeq(only, ",") {
			if last := len(wanted) - 1; name == " coalesced" && last >= 0 { // the comma is the name's
				wanted[last] += "," + name
				continue
			}
			wanted = append(wanted, name)
		}
		for _, name := range wanted {
			if !slices.Contains(p.Contenders, name) {
				return fmt.Errorf("there is no contender %q, only %q", name, p.Contenders)
			}
		}
		p.Contenders = wanted
	}
	if callers != "" {
		p.Callers = nil
		for number := range strings.SplitSeq(callers, ",") {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				return fmt.Errorf("-callers: %q is no number of callers", number)
			}
			p.Callers = append(p.Callers, n)
		}
	}
	return nil
}

// setting is one thing to measure. Pool is the number of pgx's connections.
type setting struct {
	Contender string `json:"contender"`
	Callers   int    `json:"callers"`
	Pool      int    `json:"pool,omitempty"`
}

func (s setting) String() string {
	if s.Pool > 0 {
		return fmt.Sprintf("%s over %d connections", s.Contender, s.Pool)
	}
	return s.Contender
}

// settings lists everything that a round measures.
func (p plan) settings() (all []setting) {
	for _, callers := range p.Callers {
		for _, name := range p.Contenders {
			if name != pgx {
				all = append(all, setting{Contender: name, Callers: callers})
				continue
			}
			for i, pool := range p.Pools {
				// More connections than callers do no more than as many would.
				if i == 0 || p.Pools[i-1] < callers {
					all = append(all, setting{Contender: pgx, Callers: callers, Pool: pool})
				}
			}
		}
	}
	return all
}

// round is the settings in the order of the n-th round: each starts elsewhere, so that
// none is always measured after the same one.
func (p plan) round(n int) []setting {
	all := p.settings()
	start := n * len(all) / p.Rounds
	order := append(slices.Clone(all[start:]), all[:start]...)
	if n%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

package main

import (
	"context"
	"os"
	"time"
)

// sample is what one window of a setting gave.
type sample struct {
	Rate float64       `json:"cycles_per_second"`
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	// CPU seconds per 1000 cycles.
	Client   float64 `json:"client_cpu"`
	Server   float64 `json:"server_cpu"`
	Database float64 `json:"database_cpu"`
	// Others is the share of the machine's CPU time that went to processes which are
	// no part of this.
	Others float64 `json:"others"`
}

// usage is CPU time used until now.
type usage struct{ client, server, database, machine time.Duration }

func (u usage) minus(earlier usage) usage {
	return usage{u.client - earlier.client, u.server - earlier.server, u.database - earlier.database, u.machine - earlier.machine}
}

func (b *bench) usage(s setting) usage {
	u := usage{client: cpuOf(os.Getpid()), machine: cpuOfMachine()}
	server := servedBy(s.Contender)
	if c := b.children[server]; c != nil {
		u.server = cpuOf(c.cmd.Process.Pid)
	}
	if b.database != nil && (server == pgx || server == postgres) {
		u.database = cpuOfAll(b.database.Processes())
	}
	return u
}

// sample measures one window of a setting.
func (b *bench) sample(ctx context.Context, s setting) (sample, error) {
	if err := b.settle(ctx); err != nil {
		return sample{}, err
	}
	c, err := b.connect(ctx, s)
	if err != nil {
		return sample{}, err
	}
	defer c.close()
	all := startCallers(ctx, c, s.Callers)
	warm := pause(ctx, b.plan.WarmUp)
	before, w := b.usage(s), window{begin: time.Now()}
	measured := pause(ctx, b.plan.Window)
	after := b.usage(s)
	w.end = time.Now()
	took, err := all.stop(w)
	for _, failed := range []error{warm, measured} {
		if failed != nil {
			err = failed
		}
	}
	if err != nil {
		return sample{}, err
	}
	return summarise(took, w.end.Sub(w.begin), after.minus(before)), nil
}

// summarise makes a sample of the sorted durations of a window's cycles.
func summarise(took []time.Duration, length time.Duration, used usage) sample {
	thousands := float64(len(took)) / 1000
	s := sample{
		Rate: float64(len(took)) / length.Seconds(), P50: percentile(took, 50), P99: percentile(took, 99),
		Client: used.client.Seconds() / thousands, Server: used.server.Seconds() / thousands,
		Database: used.database.Seconds() / thousands,
	}
	if whole := length * time.Duration(cores()); whole > 0 {
		others := used.machine - used.client - used.server - used.database
		s.Others = max(0, others.Seconds()/whole.Seconds())
	}
	return s
}

// How long a quiet moment is, how much CPU time may be used in it, and how often it is
// waited for.
const (
	settleFor   = 200 * time.Millisecond
	settledAt   = 20 * time.Millisecond
	settleTries = 10
)

// settle waits until the servers rest: what the one before left to do, such as
// compactions, must not fall to the next.
func (b *bench) settle(ctx context.Context) error {
	for range settleTries {
		before := b.busy()
		if err := pause(ctx, settleFor); err != nil {
			return err
		}
		if b.busy()-before <= settledAt {
			break
		}
	}
	return nil
}

func (b *bench) busy() time.Duration {
	var pids []int
	for _, c := range b.children {
		pids = append(pids, c.cmd.Process.Pid)
	}
	if b.database != nil {
		pids = append(pids, b.database.Processes()...)
	}
	return cpuOfAll(pids)
}

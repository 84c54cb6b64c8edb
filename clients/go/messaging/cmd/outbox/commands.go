package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

type migrateCmd struct{}

// Run makes the table.
func (migrateCmd) Run(b *bench) error { return b.outbox.Migrate(b.ctx, b.pool) }

type listCmd struct {
	State string `default:"parked" enum:"parked,pending" help:"Which: parked or pending."`
	After int64  `default:"0" help:"Those behind this position, which is the last one of the page before."`
	Limit int    `default:"100" help:"At most so many: 1 to 1,000."`
}

// Run lists a page.
func (l listCmd) Run(b *bench) error {
	state := outbox.Parked
	if l.State == "pending" {
		state = outbox.Pending
	}
	rows, err := b.outbox.List(b.ctx, b.pool, state, l.After, l.Limit)
	if err != nil {
		return err
	}
	if b.json {
		return b.print(rows)
	}
	table := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "POSITION\tID\tAGGREGATE\tTYPE\tBYTES\tATTEMPTS\tCREATED\tLAST ERROR")
	for _, r := range rows {
		// Quoted: what is in a row may steer a terminal.
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s %s\t%s\t%d\t%d\t%s\t%s\n", r.Position, r.ID, plain(r.AggregateType), plain(r.AggregateID), plain(r.Type),
			r.PayloadBytes, r.Attempts, r.CreatedAt.UTC().Format(time.RFC3339), plain(r.LastError))
	}
	return table.Flush()
}

// plain is a text with its control characters written out.
func plain(s string) string {
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

type redriveCmd struct {
	IDs  []string `arg:"" optional:"" name:"id" help:"The events' ids."`
	Type string   `help:"All that are of this type of event."`
	All  bool     `help:"All."`
}

// Validate lets exactly one choice pass.
func (r redriveCmd) Validate() error {
	chosen := 0
	for _, is := range []bool{len(r.IDs) > 0, r.Type != "", r.All} {
		if is {
			chosen++
		}
	}
	if chosen != 1 {
		return errors.New("give one of: ids, --type, --all")
	}
	return nil
}

// Run redrives and tells how many there were.
func (r redriveCmd) Run(b *bench) error {
	if len(r.IDs) == 0 {
		return b.redriven(b.outbox.RedriveAll(b.ctx, b.pool, r.Type))
	}
	slices.Sort(r.IDs)
	ids := slices.Compact(r.IDs)
	n, err := b.outbox.Redrive(b.ctx, b.pool, ids...)
	if err := b.redriven(n, err); err != nil {
		return err
	}
	if n < int64(len(ids)) {
		return errNone
	}
	return nil
}

// redriven tells how many there were, also where it failed in the middle.
func (b *bench) redriven(n int64, err error) error {
	if err != nil && n == 0 {
		return err
	}
	return errors.Join(err, b.tell("redriven", n))
}

type statsCmd struct{}

// Run counts.
func (statsCmd) Run(b *bench) error {
	s, err := b.outbox.Stats(b.ctx, b.pool)
	if err != nil {
		return err
	}
	if b.json {
		return b.print(s)
	}
	_, err = fmt.Fprintf(b.out, "pending         %d\noldest pending  %v\nparked          %d\n", s.Pending, s.OldestPending.Round(time.Millisecond), s.Parked)
	return err
}

type sweepCmd struct {
	Retention time.Duration `default:"168h" help:"Remove what was sent longer ago than this."`
	ByAge     bool          `help:"Remove what was added longer ago, sent or not: for a table that is read from PostgreSQL's log. With a relay it loses events."`
}

// Run sweeps and tells how many rows there were.
func (s sweepCmd) Run(b *bench) error {
	sweep := b.outbox.Sweep
	if s.ByAge {
		sweep = b.outbox.SweepByAge
	}
	n, err := sweep(b.ctx, b.pool, s.Retention)
	return errors.Join(err, b.tell("swept", n))
}

// printer prints for people or for programs.
type printer struct {
	out  io.Writer
	json bool
}

func (p printer) print(v any) error {
	encoder := json.NewEncoder(p.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// tell prints a number, with its name.
func (p printer) tell(what string, n int64) error {
	if p.json {
		return p.print(map[string]int64{what: n})
	}
	_, err := fmt.Fprintln(p.out, what, n)
	return err
}

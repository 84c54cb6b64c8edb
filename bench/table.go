package main

import (
	"fmt"
	"strings"
	"time"
)

// markdown is the report for people. Of pgx only its best number of connections is shown.
func (r *report) markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	line("| callers | contender | cycles/s: median (min–max) | p50 | p99 | CPU s per 1,000 cycles: client + server + database | × echo | × pgx |")
	line("|--:|---|--:|--:|--:|--:|--:|--:|")
	for _, at := range r.Rows {
		if !at.Best {
			continue
		}
		line("| %d | %v | %.0f (%.0f–%.0f) | %s | %s | %.3f + %.3f + %.3f | %s | %s |",
			at.Callers, at.setting, at.Rate.Median, at.Rate.Min, at.Rate.Max, millis(at.P50), millis(at.P99),
			at.Client, at.Server, at.Database, times(at.ToEcho), times(at.ToPgx))
	}
	line("")
	for _, bar := range r.Bars {
		line("- %s at %d callers: %.2f × %s; the bar is %.2f, the aim %.2f: %s", bar.Contender, bar.Callers, bar.Got, bar.Yardstick, bar.Want, bar.Aim, verdict(bar.reached()))
	}
	line("")
	r.waitingTable(line)
	r.sweepingTable(line)
	line("%s", r.circumstances())
	return b.String()
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

func times(ratio float64) string {
	if ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", ratio)
}

func (r *report) circumstances() string {
	m := r.Machine
	return fmt.Sprintf("Measured %s: %d cores (%s), %s, %s on which fsync takes %s (median), %s, PostgreSQL %s. "+
		"%d rounds, in each %v of every line after %v of warm-up. Other processes used %.0f %% of the machine meanwhile.",
		r.When.Format(time.DateOnly), m.Cores, m.CPU, m.Kernel, m.Filesystem, millis(m.Fsync), m.Go, orNone(m.Postgres),
		r.Plan.Rounds, r.Plan.Window, r.Plan.WarmUp, 100*r.others())
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// others is the median share of processes that are no part of this.
func (r *report) others() float64 {
	shares := make([]float64, len(r.Rows))
	for i, at := range r.Rows {
		shares[i] = at.Others
	}
	return median(shares)
}

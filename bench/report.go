package main

import (
	"time"
)

// report is what a run found.
type report struct {
	When     time.Time  `json:"when"`
	Machine  machine    `json:"machine"`
	Plan     plan       `json:"plan"`
	Rows     []row      `json:"rows"`
	Bars     []bar      `json:"bars"`
	Waiting  []waiting  `json:"waiting,omitempty"`
	Sweeping []sweeping `json:"sweeping,omitempty"`
}

// row is one setting over all rounds. Values are medians.
type row struct {
	setting
	Rate     spread        `json:"cycles_per_second"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Client   float64       `json:"client_cpu_seconds_per_1000"`
	Server   float64       `json:"server_cpu_seconds_per_1000"`
	Database float64       `json:"database_cpu_seconds_per_1000"`
	Others   float64       `json:"cpu_share_of_others"`
	// Best of the settings of its contender at this number of callers.
	Best   bool     `json:"best"`
	ToEcho float64  `json:"ratio_to_echo,omitempty"`
	ToPgx  float64  `json:"ratio_to_pgx,omitempty"`
	Rounds []sample `json:"rounds"`
}

// bar is a ratio that must be reached.
type bar struct {
	Contender string  `json:"contender"`
	Yardstick string  `json:"yardstick"`
	Callers   int     `json:"callers"`
	Want      float64 `json:"want"`
	Aim       float64 `json:"aim"`
	Got       float64 `json:"got"`
}

func bars() []bar {
	return []bar{
		{Contender: embedded, Yardstick: echo, Callers: 256, Want: 0.65, Aim: 0.8},
		{Contender: embeddedCoalesced, Yardstick: echo, Callers: 256, Want: 1.75, Aim: 2.5},
		{Contender: postgres, Yardstick: pgx, Callers: 256, Want: 1.8, Aim: 2.5},
		{Contender: postgresCoalesced, Yardstick: pgx, Callers: 256, Want: 3.5, Aim: 5},
	}
}

func (b bar) reached() bool { return b.Got >= b.Want }

// fill makes rows of samples, then ratios of the rows' medians.
func (r *report) fill(p plan, samples map[setting][]sample) {
	for _, s := range p.settings() {
		r.Rows = append(r.Rows, rowOf(s, samples[s]))
	}
	for i := range r.Rows {
		at := &r.Rows[i]
		at.Best = at.Rate.Median == r.best(at.Contender, at.Callers)
		at.ToEcho = ratio(at.Rate.Median, r.best(echo, at.Callers))
		at.ToPgx = ratio(at.Rate.Median, r.best(pgx, at.Callers))
	}
	for _, b := range bars() {
		b.Got = ratio(r.best(b.Contender, b.Callers), r.best(b.Yardstick, b.Callers))
		if b.Got > 0 {
			r.Bars = append(r.Bars, b)
		}
	}
}

func rowOf(s setting, samples []sample) row {
	middle := func(value func(sample) float64) float64 { return median(each(samples, value)) }
	return row{
		setting: s, Rounds: samples,
		Rate:     spreadOf(each(samples, func(s sample) float64 { return s.Rate })),
		P50:      time.Duration(middle(func(s sample) float64 { return float64(s.P50) })),
		P99:      time.Duration(middle(func(s sample) float64 { return float64(s.P99) })),
		Client:   middle(func(s sample) float64 { return s.Client }),
		Server:   middle(func(s sample) float64 { return s.Server }),
		Database: middle(func(s sample) float64 { return s.Database }),
		Others:   middle(func(s sample) float64 { return s.Others }),
	}
}

// best is the highest median rate of a contender at a number of callers; 0 = it was not
// measured.
func (r *report) best(contender string, callers int) (rate float64) {
	for _, at := range r.Rows {
		if at.Contender == contender && at.Callers == callers {
			rate = max(rate, at.Rate.Median)
		}
	}
	return rate
}

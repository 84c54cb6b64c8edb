package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tenantsOnly is the name of this measurement.
const tenantsOnly = "tenants"

// A quiet tenant calls at a steady pace. Beside it a loud one, with a quota, calls at its
// rate, and then at ten times that.
const (
	quietRate = 300
	loudRate  = 300
	tooMuch   = 10
	beside    = 4 * time.Second // what counts of each
)

// neighbours are what the quiet tenant feels, in one round.
type neighbours struct {
	within, beyond latencies // beside the loud one at its rate, and at ten times that
	refused        int       // of the loud one, beyond
	spoilt         int       // of the quiet one, in both
}

// measureTenants measures on the embedded store.
func measureTenants(ctx context.Context, rounds int) (string, error) {
	dir, err := os.MkdirTemp("", "idemd-bench-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "idemd.yaml")
	told := fmt.Sprintf("tenants: {quiet: , loud: {quotas: {rate: %d, burst: %d}}}\n", loudRate, loudRate/10)
	if err := os.WriteFile(file, []byte(told), 0o600); err != nil {
		return "", err
	}
	daemon, err := startChild(ctx, embedded, "", dirVariable+"="+filepath.Join(dir, "store"), configVariable+"="+file)
	if err != nil {
		return "", err
	}
	defer daemon.stop()
	var all []neighbours
	for n := range rounds {
		round, err := measureRound(ctx, daemon, n%2 == 1)
		if err != nil {
			return "", err
		}
		all = append(all, round)
	}
	return tenantsTable(all), nil
}

// measureRound measures both, the one or the other first.
func measureRound(ctx context.Context, daemon *child, beyondFirst bool) (round neighbours, err error) {
	for _, beyond := range []bool{beyondFirst, !beyondFirst} {
		rate := float64(loudRate)
		if beyond {
			rate *= tooMuch
		}
		felt, refused, spoilt, err := besideLoud(ctx, daemon, rate)
		if err != nil {
			return round, err
		}
		if round.spoilt += spoilt; beyond {
			round.beyond, round.refused = felt, refused
		} else {
			round.within = felt
		}
	}
	return round, nil
}

func besideLoud(ctx context.Context, daemon *child, rate float64) (felt latencies, refused, spoilt int, err error) {
	quiet, err := dialAs(daemon, "quiet")
	if err != nil {
		return felt, 0, 0, err
	}
	defer quiet.close()
	loud, err := dialAs(daemon, "loud")
	if err != nil {
		return felt, 0, 0, err
	}
	defer loud.close()
	loudLoad, quietLoad := openLoop(ctx, loud, rate), openLoop(ctx, quiet, quietRate)
	err = pause(ctx, time.Second)
	began := time.Now()
	err = errors.Join(err, pause(ctx, beside))
	laps, spoilt, errQuiet := quietLoad.stop()
	_, refused, errLoud := loudLoad.stop()
	return within(laps, window{began, began.Add(beside)}), refused, spoilt, errors.Join(err, errQuiet, errLoud)
}

func dialAs(daemon *child, name string) (*grpcClient, error) {
	c, err := dial(daemon.address, callersPerConn, false)
	if err == nil {
		c.tenant = name
	}
	return c, err
}

func tenantsTable(all []neighbours) string {
	var text strings.Builder
	value := func(of func(neighbours) time.Duration) float64 {
		var values []float64
		for _, round := range all {
			values = append(values, of(round).Seconds())
		}
		return median(values)
	}
	within, beyond := value(func(n neighbours) time.Duration { return n.within.P99 }), value(func(n neighbours) time.Duration { return n.beyond.P99 })
	refused, spoilt := 0, 0
	for _, round := range all {
		refused, spoilt = refused+round.refused, spoilt+round.spoilt
	}
	fmt.Fprintf(&text, "| a tenant at %d cycles/s beside one at | p50 | p99 |\n|---|--:|--:|\n", quietRate)
	fmt.Fprintf(&text, "| its rate, %d a second | %.1f ms | %.1f ms |\n", loudRate, 1e3*value(func(n neighbours) time.Duration { return n.within.P50 }), 1e3*within)
	fmt.Fprintf(&text, "| %d times its rate; %d Reserves refused | %.1f ms | %.1f ms |\n\n", tooMuch, refused, 1e3*value(func(n neighbours) time.Duration { return n.beyond.P50 }), 1e3*beyond)
	fmt.Fprintf(&text, "- Medians of %d rounds. Its p99 is %.2f times as long; the bar is 1.50: %s\n", len(all), ratio(beyond, within), verdict(ratio(beyond, within) <= 1.5))
	fmt.Fprintf(&text, "- Of its own cycles %d were refused: %s\n", spoilt, verdict(spoilt == 0))
	return text.String()
}

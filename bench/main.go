package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(exitCode(serve(role)))
	}
	os.Exit(exitCode(measure(os.Args[1:])))
}

func exitCode(err error) int {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// measure runs the plan that the flags ask for and writes what it found.
func measure(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "a short run: under a minute, more noise")
	out := flags.String("out", "", "write the report to this .json file, and its table into the .md file beside it")
	dir := flags.String("dir", "", "make the stores in this directory (default: the system's for temporary files)")
	only := flags.String("only", "", "measure these contenders only, separated by commas; or "+outboxOnly+": the outbox's relay, or "+tenantsOnly+": one tenant beside a loud one, and nothing else")
	callers := flags.String("callers", "", "measure these numbers of callers only, separated by commas")
	waiters := flags.Int("waiters", -1, "have this many calls wait; 0 = do not measure waiting (default: as the plan says)")
	expired := flags.Int("expired", -1, "sweep this many records a cycle; 0 = do not measure sweeping (default: as the plan says)")
	profile := flags.String("profile", "", "write CPU profiles of client and servers to this directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	p := fullPlan()
	if *quick {
		p = quickPlan()
	}
	if *dir != "" {
		// The one place that everything here, PostgreSQL too, takes its directories from.
		if err := os.Setenv("TMPDIR", *dir); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *only == outboxOnly {
		size := 4.0
		if *quick {
			size = 1
		}
		table, err := measureOutbox(ctx, drains(size), p.Rounds)
		fmt.Print(table)
		return err
	}
	if *only == tenantsOnly {
		table, err := measureTenants(ctx, p.Rounds)
		fmt.Print(table)
		return err
	}
	if *waiters >= 0 {
		p.Waiters = *waiters
	}
	if *expired >= 0 {
		p.Expired = *expired
	}
	if err := p.narrow(*only, *callers); err != nil {
		return err
	}
	found, err := run(ctx, p, *profile)
	if err != nil {
		return err
	}
	fmt.Print(found.markdown())
	if *out == "" {
		return nil
	}
	return found.write(*out)
}

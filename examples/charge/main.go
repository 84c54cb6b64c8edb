// Command charge shows that idemd makes a charge happen once.
//
// Without --torture it is a demonstration: fifty clients charge one order, half of them
// hang up, the daemon is killed with -9. With it, thousands of operations meet every
// fault that can be made here, and the bank's ledger is checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/idemd/idemd/examples/charge/torture"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "charge: %v\n", err)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("charge", flag.ContinueOnError)
	program := flags.String("idemd", "idemd", "`path` of the program idemd")
	var t torture.Config
	flags.IntVar(&t.Operations, "torture", 0, "torture it with `N` operations")
	flags.Uint64Var(&t.Seed, "seed", uint64(time.Now().UnixNano()), "choose the faults by this `number`")
	flags.IntVar(&t.Workers, "workers", 400, "`operations` at once")
	flags.IntVar(&t.Kills, "kills", 0, "kill the daemon with -9 this `often`; 0 = once in 2,000 operations, at least 5 times")
	store := flags.String("store", "embedded", "`store` of the daemon: embedded or postgres")
	flags.StringVar(&t.Postgres, "postgres", "", "`DSN` of an empty database, for --store postgres")
	flags.StringVar(&t.Broken, "broken", "", "break what is tested, to see that it is noticed: `part` is "+strings.Join(torture.Parts(), ", "))
	flags.IntVar(&t.Show, "show", 20, "list at most `N` unresolved operations")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	if (*store == "postgres") != (t.Postgres != "") || *store != "embedded" && *store != "postgres" {
		return errors.New("want --store embedded, or --store postgres together with --postgres DSN")
	}
	if t.Operations == 0 {
		return demo(ctx, *program, out)
	}
	t.Idemd, t.Out = *program, out
	return torture.Run(ctx, t)
}

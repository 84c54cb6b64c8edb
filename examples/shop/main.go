// Command shop shows what happens to an order on its way: an HTTP service that takes it, a
// relay, a broker, a warehouse and a mailer, each a process of its own, with idemd,
// PostgreSQL and a pretend mail server. Without a part it starts all of them, starts again
// what dies, and says where orders are taken. With --chaos it kills them while orders are
// placed, and counts what has become of each. README.md has the drawing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "shop: %v\n", err)
	}
	os.Exit(1)
}

// settings are the flags.
type settings struct {
	idemd, listen, postgres, broken string
	chaos, clients                  int
	seed                            uint64
}

func run(ctx context.Context, args []string, out, logs io.Writer) error {
	if len(args) > 0 {
		if part := parts()[args[0]]; part != nil {
			return part(ctx, args[1:], logs)
		}
	}
	s := settings{}
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.StringVar(&s.idemd, "idemd", "idemd", "`path` of the program idemd")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8080", "`address` of the orders")
	flags.StringVar(&s.postgres, "postgres", "", "`DSN` of an empty database; none = a PostgreSQL that is started here and thrown away")
	flags.IntVar(&s.chaos, "chaos", 0, "place this `number` of orders while everything is killed, and count")
	flags.IntVar(&s.clients, "clients", 64, "how many of them are placed at once")
	flags.Uint64Var(&s.seed, "seed", 0, "what is drawn by lot in the chaos; 0 = another one each time")
	flags.StringVar(&s.broken, "broken", "", "break a `part`, so that the count must notice: "+strings.Join(broken(), ", "))
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	case s.broken != "" && !slices.Contains(broken(), s.broken):
		return fmt.Errorf("--broken: %q; one of %s", s.broken, strings.Join(broken(), ", "))
	case s.chaos < 0 || s.chaos > 10_000 || s.clients < 1 || s.clients > 256:
		return errors.New("--chaos goes up to 10000, --clients from 1 to 256")
	}
	if s.seed == 0 {
		s.seed = uint64(rand.Uint32())
	}
	return house(ctx, s, out, logs)
}

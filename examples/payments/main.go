// Command payments shows guarded services: an HTTP front, a gRPC service behind it, a
// pretend bank, and idemd. Without a part it starts all of them as processes of their own,
// starts again what dies, and says where the front listens. README.md has the tour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
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
		fmt.Fprintf(os.Stderr, "payments: %v\n", err)
	}
	os.Exit(1)
}

func run(ctx context.Context, args []string, out, logs io.Writer) error {
	flags := flag.NewFlagSet("payments", flag.ContinueOnError)
	idemd := flags.String("idemd", "idemd", "`path` of the program idemd")
	listen := flags.String("listen", "127.0.0.1:8080", "`address` of the front")
	if len(args) > 0 {
		if part := parts()[args[0]]; part != nil {
			return part(ctx, args[1:], logs)
		}
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return house(ctx, *idemd, *listen, out, logs)
}

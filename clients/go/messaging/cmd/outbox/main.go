package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
)

// cli is the command line. Every flag is also an environment variable: --postgres is
// OUTBOX_POSTGRES.
type cli struct {
	Postgres string        `required:"" help:"Where the table lies: a connection string of PostgreSQL."`
	Schema   string        `default:"public" help:"The table's schema."`
	Table    string        `default:"outbox" help:"The table's name."`
	Output   string        `short:"o" default:"table" enum:"table,json" help:"How to print: table or json."`
	Timeout  time.Duration `default:"0" help:"Give up after this long; 0 = never."`

	Migrate migrateCmd `cmd:"" help:"Make the table, or bring it up to date."`
	List    listCmd    `cmd:"" help:"List events that are parked, or pending."`
	Redrive redriveCmd `cmd:"" help:"Make parked events pending again."`
	Stats   statsCmd   `cmd:"" help:"Count what is pending and what is parked."`
	Sweep   sweepCmd   `cmd:"" help:"Remove what was sent long ago."`
}

const description = `outbox looks after the table of an outbox.

Exit codes: 0 done · 1 failed · 2 wrong usage · 7 some of the events to redrive are not parked`

const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
	exitNone   = 7
)

// errNone is told by exitNone.
var errNone = errors.New("not all of these events are parked")

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with everything injected; it returns the exit code.
func run(args []string, out, errOut io.Writer) int {
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("outbox"), kong.Description(description), kong.DefaultEnvars("OUTBOX"),
		kong.Writers(out, errOut), kong.Exit(func(code int) { exited = code }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		_, _ = fmt.Fprintln(errOut, "outbox:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(errOut, "outbox: %v (see outbox --help)\n", err)
		return exitUsage
	}
	switch err := commands.do(command, out); {
	case err == nil:
		return exitDone
	case errors.Is(err, errNone):
		_, _ = fmt.Fprintln(errOut, "outbox:", err)
		return exitNone
	default:
		_, _ = fmt.Fprintln(errOut, "outbox:", err)
		return exitFailed
	}
}

// do connects and runs the chosen command.
func (c *cli) do(command *kong.Context, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	// The order matters to who adds and who sends, and to nothing that is done here.
	o, err := outbox.New(outbox.Config{Schema: c.Schema, Table: c.Table, Order: outbox.None})
	if err != nil {
		return err
	}
	settings, err := pgxpool.ParseConfig(c.Postgres)
	if err != nil {
		return errors.New("--postgres is not a connection string") // which has a password in it
	}
	settings.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return err
	}
	defer pool.Close()
	return command.Run(&bench{ctx, pool, o, printer{out, c.Output == "json"}})
}

// bench is what commands work with.
type bench struct {
	ctx    context.Context
	pool   *pgxpool.Pool
	outbox *outbox.Outbox
	printer
}

// Command idemd is the daemon that makes side effects happen once, and the tool that
// talks to it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// cli is the command line. Every flag is also an environment variable: --grpc-addr is
// IDEMD_GRPC_ADDR.
type cli struct {
	Serve    serveCmd    `cmd:"" help:"Run the daemon."`
	Config   configCmd   `cmd:"" help:"Check or print a configuration."`
	Migrate  migrateCmd  `cmd:"" help:"Bring PostgreSQL's schema up to date."`
	Check    checkCmd    `cmd:"" help:"Read a whole store and report what is damaged."`
	Health   healthCmd   `cmd:"" help:"Ask a daemon whether it can take calls."`
	Reserve  reserveCmd  `cmd:"" help:"Ask for the right to execute an operation."`
	Extend   extendCmd   `cmd:"" help:"Prolong the lease of an attempt, or store a checkpoint."`
	Complete completeCmd `cmd:"" help:"Store the result of an operation."`
	Fail     failCmd     `cmd:"" help:"Tell that an operation was not done, or that nobody knows."`
	Lookup   lookupCmd   `cmd:"" help:"Show a reservation."`
	Resolve  resolveCmd  `cmd:"" help:"Give the verdict on an operation of which nobody knows how it ended."`
	Stats    statsCmd    `cmd:"" help:"Count what is open in each namespace, and name the oldest unresolved operation."`
	List     listCmd     `cmd:"" help:"List reservations."`
	Tenants  tenantsCmd  `cmd:"" help:"List the tenants that have anything open."`
	Erase    eraseCmd    `cmd:"" help:"Remove the result of a finished operation for good; it still does not run again."`
	Audit    auditCmd    `cmd:"" help:"List the acts of operators, newest first."`
	Version  versionCmd  `cmd:"" help:"Show the version of this program."`
}

const description = `idemd makes side effects happen once.

Exit codes: 0 done (reserve: owned) · 1 unexpected failure · 2 wrong usage ·
3 in progress · 4 replay · 5 unresolved · 6 refused: contradicts the reservation ·
7 no such reservation · 8 refused: invalid request · 9 daemon or store unavailable ·
10 refused: by identity, tenant, role or quota`

// streams are where commands read and write.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() { os.Exit(run(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})) }

// run is main with everything injected; it returns the exit code.
func run(args []string, std streams) int {
	var commands cli
	exited := -1
	parser, err := kong.New(&commands,
		kong.Name("idemd"), kong.Description(description), kong.DefaultEnvars("IDEMD"),
		kong.Writers(std.out, std.err), kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}), kong.Bind(std),
	)
	if err != nil {
		_, _ = fmt.Fprintln(std.err, "idemd:", err)
		return exitUnexpected
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "idemd: %v (see idemd --help)\n", err)
		return exitUsage
	}
	return exitCode(command.Run(std), std.err)
}

// exitCode prints an error, if there is one to print, and turns it into an exit code.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	var said answered
	if errors.As(err, &said) {
		return int(said)
	}
	_, _ = fmt.Fprintln(stderr, "idemd:", describe(err))
	return codeFor(err)
}

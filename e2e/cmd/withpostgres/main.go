package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/idemd/idemd/internal/pgtest"
)

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code of the command.
func run(args []string) int {
	if len(args) == 0 {
		_, _ = fmt.Fprintln(os.Stderr, "usage: withpostgres COMMAND [ARGUMENT with {dsn}]...")
		return 2
	}
	server, err := pgtest.New()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer server.Remove()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{dsn}", server.DSN("postgres"))
	}
	// An interrupt reaches the command too; the server is removed after it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	command := exec.Command(args[0], args[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = command.Run()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
	return 1
}

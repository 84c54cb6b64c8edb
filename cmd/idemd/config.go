package main

import (
	"errors"
	"fmt"

	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/daemon"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Say what is wrong with a configuration's file."`
	Print configPrintCmd `cmd:"" help:"Print the configuration that a daemon would run with, secrets masked."`
}

type configCheckCmd struct {
	File  string `arg:"" help:"The configuration's file." placeholder:"FILE"`
	Files bool   `help:"Also read the files that it names: certificates, keys, the connection string."`
}

// Run checks the file alone: neither flags nor environment can mend it.
func (c *configCheckCmd) Run(std streams) error {
	settings, _, err := config.Source{File: c.File}.Load()
	if err == nil && c.Files {
		err = daemon.CheckFiles(settings)
	}
	if err != nil {
		return unusable(err)
	}
	_, err = fmt.Fprintf(std.out, "%s is good\n", c.File)
	return err
}

// unusable is an error on lines of its own where it names places in a file.
func unusable(err error) error {
	var problems *config.Problems
	if errors.As(err, &problems) {
		return usageError{fmt.Errorf("the configuration is wrong:\n%w", err)}
	}
	return usageError{err}
}

type configPrintCmd struct {
	settingsFlags
}

// Run prints what flags, environment, file and defaults come to.
func (c *configPrintCmd) Run(std streams) error {
	settings, _, err := c.source().Load()
	if err != nil {
		return unusable(err)
	}
	printed, err := settings.Print()
	if err != nil {
		return err
	}
	_, err = std.out.Write(printed)
	return err
}

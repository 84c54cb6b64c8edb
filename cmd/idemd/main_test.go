package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/idemd/idemd/internal/pgtest"
)

// childVariable turns this test binary into idemd itself.
const childVariable = "IDEMD_TEST_CHILD"

// postgres is the server that the tests share.
var postgres pgtest.Shared

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		_ = os.Unsetenv(childVariable)
		main()
	}
	testscript.Main(suite{m}, map[string]func(){"idemd": main})
}

type suite struct{ m *testing.M }

func (s suite) Run() int { return postgres.Run(s.m) }

package main

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The scripts under testdata are the command line as people and shells use it. Each
// runs against a daemon on each store; IDEMD_ADDR leads the commands to it.
func TestScripts(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			p := serve(t, b.flags...)
			testscript.Run(t, testscript.Params{
				Dir: "testdata",
				Setup: func(env *testscript.Env) error {
					env.Setenv("IDEMD_ADDR", p.grpc)
					env.Setenv("DAEMON_HTTP", p.http)
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": exits, "token": token, "version": version,
					"wait-lapsed": func(ts *testscript.TestScript, _ bool, args []string) { waitLapsed(ts, dial(t, p.grpc), args) },
					"shows":       shows,
				},
			})
		})
	}
}

// exits runs idemd and demands an exit code: exits 3 reserve …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARG...")
	}
	err := ts.Exec("idemd", args[1:]...)
	code := "0"
	if err != nil {
		code = exitText(err)
	}
	if code != args[0] {
		ts.Fatalf("idemd %v exits with %s, want %s", args[1:], code, args[0])
	}
}

// token puts the owner token that the last reserve printed into an environment
// variable: token NAME.
func token(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: token NAME")
	}
	found := ownerToken.FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("the last command printed no owner token")
	}
	ts.Setenv(args[0], found[1])
}

// version puts the version that the last lookup printed into an environment
// variable: version NAME.
func version(ts *testscript.TestScript, neg bool, args []string) {
	found := shownVersion.FindStringSubmatch(ts.ReadFile("stdout"))
	if neg || len(args) != 1 || found == nil {
		ts.Fatalf("usage: version NAME, after a lookup")
	}
	ts.Setenv(args[0], found[1])
}

// shows runs idemd until it prints what is wanted, for counts are some seconds old: shows
// REGEXP ARG...
func shows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: shows REGEXP ARG...")
	}
	wanted := regexp.MustCompile(args[0])
	for range 100 {
		ts.Check(ts.Exec("idemd", args[1:]...))
		if wanted.MatchString(ts.ReadFile("stdout")) {
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	ts.Fatalf("idemd %v does not print %s", args[1:], args[0])
}

// waitLapsed waits until a reservation's lease is over: wait-lapsed KEY [TENANT].
func waitLapsed(ts *testscript.TestScript, c *client, args []string) {
	key, tenant := args[0], "acme"
	if len(args) > 1 {
		tenant = args[1]
	}
	for range 1000 {
		found, err := c.Lookup(context.Background(), &idemdv1.LookupRequest{Tenant: tenant, Key: key})
		ts.Check(err)
		if time.Until(found.GetReservation().GetLeaseExpiresAt().AsTime()) < -50*time.Millisecond {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	ts.Fatalf("%s does not lapse", key)
}

var shownVersion = regexp.MustCompile(`reservation.version\s+([0-9]+)`)

var ownerToken = regexp.MustCompile(`owner_token"?:?\s+"?([0-9a-f]+)`)

func exitText(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return strconv.Itoa(exit.ExitCode())
	}
	return err.Error()
}

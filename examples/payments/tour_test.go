package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the tour's commands print into README.md")

// The commands of the README run in one bash, in order, against real processes, and print
// what stands there; times, ports and signatures aside.
func TestTheTourPrintsWhatTheREADMESays(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("the tour needs %s: install it (apt-get install %s; curl of version 7.84 or newer)", program, program)
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsIn(string(text))
	if len(steps) < 20 {
		t.Fatalf("only %d commands were found", len(steps))
	}
	printed := walk(t, start(t), steps)
	rest, page := string(text), &strings.Builder{}
	for i, s := range steps {
		if masked(s.prints) != masked(printed[i]) && !*update {
			t.Errorf("$ %s\nprints:\n%s\nREADME.md says:\n%s", s.command, printed[i], s.prints)
		}
		before, after, _ := strings.Cut(rest, "$ "+s.command+"\n"+s.prints)
		page.WriteString(before + "$ " + s.command + "\n" + printed[i])
		rest = after
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(page.String()+rest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// step is a command and what it prints.
type step struct{ command, prints string }

// stepsIn reads blocks of ```console: a command stands behind "$ ", and goes on in the next
// line where it ends with a backslash.
func stepsIn(page string) (steps []step) {
	inBlock, goesOn := false, false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = strings.TrimSpace(line) == "```console"
		case !inBlock:
		case goesOn:
			steps[len(steps)-1].command += "\n" + strings.TrimSuffix(line, "\n")
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{command: strings.TrimSuffix(line[2:], "\n")})
		case len(steps) > 0:
			steps[len(steps)-1].prints += line
		}
		goesOn = inBlock && (goesOn || strings.HasPrefix(line, "$ ")) && strings.HasSuffix(line, "\\\n")
	}
	return steps
}

// walk runs the commands and returns what each has printed.
func walk(t *testing.T, house *running, steps []step) []string {
	t.Helper()
	const mark = "--- end of a step ---\n"
	script := &strings.Builder{}
	for _, s := range steps {
		fmt.Fprintf(script, "%s\nprintf '%%s' '%s'\n", s.command, mark)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-c", script.String())
	bash.Dir = t.TempDir()
	bash.Env = append(os.Environ(), "FRONT="+house.front, "BANK="+house.bank, "LC_ALL=C")
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("the tour ends with: %v\n%s", err, out)
	}
	text := regexp.MustCompile(`[ \r]+\n`).ReplaceAllString(string(out), "\n")
	printed := strings.Split(text, mark)
	if len(printed) != len(steps)+1 {
		t.Fatalf("%d of %d commands have ended:\n%s", len(printed)-1, len(steps), out)
	}
	return printed[:len(steps)]
}

// masked leaves out what is another on each run.
func masked(printed string) string {
	for what, with := range map[string]string{
		`(?m)^(Date|Idempotent-Expires-At): .*$`: `$1: *`,
		`(/requests/[^.\s]+)\.\S+`:               `$1.*`,
		`127\.0\.0\.1:\d+`:                       `127.0.0.1:*`,
	} {
		printed = regexp.MustCompile(what).ReplaceAllString(printed, with)
	}
	return strings.TrimRight(printed, "\n")
}

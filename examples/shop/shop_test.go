package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// testPatience bounds a run.
const testPatience = 4 * time.Minute

// built is where TestMain has put the programs, as people run them: without the race
// detector.
var built string

func TestMain(m *testing.M) { os.Exit(withPrograms(m)) }

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "shop-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = dir
	for _, program := range []struct{ name, module, pkg string }{{"idemd", "../..", "./cmd/idemd"}, {"shop", ".", "."}} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, program.name), program.pkg)
		build.Dir = program.module
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", program.pkg, err, out)
			return 1
		}
	}
	return m.Run()
}

// wreakHavoc is a run of the program with chaos: what it prints, and whether it ends well.
func wreakHavoc(t *testing.T, orders int, more ...string) (report, complaint string, well bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(built, "shop"), append([]string{
		"--idemd", filepath.Join(built, "idemd"), "--listen", "127.0.0.1:0", "--chaos", fmt.Sprint(orders),
	}, more...)...)
	var out, logs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) {
		t.Fatalf("the run ends with %v\n%s%s", err, &out, &logs)
	}
	_, complaint, _ = strings.Cut(logs.String(), "\nshop: ")
	return out.String(), complaint, err == nil
}

// Everything but the mail server is killed with -9 while a thousand orders are placed.
func TestTheChaosRunPassesAndCountsAThousandOfEach(t *testing.T) {
	seed := rand.Uint32()
	report, complaint, well := wreakHavoc(t, 1000, "--seed", fmt.Sprint(seed))
	t.Logf("\n%s%s", report, complaint)
	if !well {
		t.Error("the run does not end well")
	}
	for _, line := range []string{"orders", "answers", "reservations", "mails"} {
		if !regexp.MustCompile(`(?m)^` + line + ` +1000 +1000 +0 +0 +0$`).MatchString(report) {
			t.Errorf("the count of %s is another one", line)
		}
	}
	if killed := regexp.MustCompile(`idemd (\d+), broker (\d+), orders (\d+), relay (\d+), warehouse (\d+), mailer (\d+)`).FindStringSubmatch(report); killed == nil {
		t.Error("it does not say who was killed")
	}
}

// A part that is broken is noticed by the count of what it does, and the rest is right all
// the same. How much goes wrong depends on what a kill hits, so a part may be lucky: not
// five times.
func TestTheCountNoticesEachBrokenPart(t *testing.T) {
	for _, b := range []struct{ part, wrong string }{
		{"new-keys", `orders: twice \d`},
		{"no-fence", `orders: twice \d`},
		{"no-outbox", `mails: twice none, lost \d`},
		{"no-inbox", `reservations: twice \d`},
		{"ack-first", `mails: twice none, lost \d`},
		{"no-guard", `mails: twice \d+`},
	} {
		t.Run(b.part, func(t *testing.T) {
			for range 5 {
				seed := fmt.Sprint(rand.Uint32())
				report, complaint, well := wreakHavoc(t, 300, "--seed", seed, "--broken", b.part)
				t.Logf("\n%s%s", report, complaint)
				if well {
					continue
				}
				if !regexp.MustCompile(b.wrong).MatchString(complaint) {
					t.Errorf("seed %s: the complaint is another one than %q", seed, b.wrong)
				}
				return
			}
			t.Error("it is not noticed")
		})
	}
}

// Every part that can be broken is in the README's table, and nothing else.
func TestTheREADMEHasEveryBrokenPart(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		named = append(named, row[1])
	}
	if fmt.Sprint(named) != fmt.Sprint(broken()) {
		t.Errorf("the table has %v, the program %v", named, broken())
	}
}

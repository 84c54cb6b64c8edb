package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// docs/failures.md names what holds against each failure as `package: TestX`, or as
// `storetest: rule` where a conformance case does. Whatever is named must be there.
func TestWhatIsSaidToHoldAgainstFailuresIsThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, rules := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, is := d.(*ast.FuncDecl); is && s.test {
				tests[filepath.Base(s.pkg)+": "+f.Name.Name] = true
			}
		}
		if s.pkg == "internal/store/storetest" {
			s.rules(rules)
		}
	}
	name, named := regexp.MustCompile("`([a-z0-9]+: [^`]+)`"), 0
	for row := range strings.Lines(string(text)) {
		if !strings.HasPrefix(row, "| ") {
			continue
		}
		if strings.Count(row, " | ") != 2 {
			t.Errorf("not three cells: %s", row)
		}
		for _, match := range name.FindAllStringSubmatch(row, -1) {
			named++
			rule, isRule := strings.CutPrefix(match[1], "storetest: ")
			if !tests[match[1]] && !(isRule && rules[rule]) {
				t.Errorf("%s is not there", match[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d tests are named", named)
	}
}

// rules adds the rules of the conformance cases in the file.
func (s source) rules(to map[string]bool) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if pair, is := n.(*ast.KeyValueExpr); is && s.nodeText(pair.Key) == "Rule" {
			if rule, err := strconv.Unquote(s.nodeText(pair.Value)); err == nil {
				to[rule] = true
			}
		}
		return true
	})
}

// The times in records are those of the store's clock. Whoever else looks at a clock
// measures how long something takes.
func TestOnlyTheEmbeddedStoreLooksAtTheMachinesClockForRecords(t *testing.T) {
	measures := map[string]string{
		"internal/engine/desk.go":               "the age of the counts that are shown",
		"internal/daemon/quotas.go":             "how long a count took, and when the next is due",
		"internal/engine/admit.go":              "how much of a rate has come back",
		"internal/engine/rules.go":              "how much of a rate has come back",
		"internal/engine/engine.go":             "when a call that waits must be answered",
		"internal/engine/wait.go":               "when a call that waits must be answered",
		"internal/engine/waiters.go":            "when a room is read next",
		"internal/engine/poller.go":             "when a room is read next, and how long reads have failed",
		"internal/ttl/sweeper.go":               "how long a batch took",
		"internal/store/pgstore/sweep.go":       "when a sweep last went from the start",
		"internal/engine/writer.go":             "how long a batch took, and how long the patience with a rival lasts",
		"internal/engine/queue.go":              "when the patience with a rival began",
		"internal/grpcserver/logging.go":        "how long a call took",
		"internal/store/pgstore/apply.go":       "how long the patience with a rival lasts",
		"internal/store/pebblestore/options.go": "the embedded store's clock",
		"internal/store/pebblestore/logging.go": "how often a line is logged",
	}
	for _, s := range sources(t) {
		inDaemon := within(s.path, []string{"internal", "cmd"}) && s.pkg != "internal/pgtest"
		if s.test || !inDaemon || measures[s.path] != "" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				switch s.nodeText(call.Fun) {
				case "time.Now", "time.Since", "time.Until":
					t.Errorf("%s looks at the machine's clock", s.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

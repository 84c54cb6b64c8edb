package guardtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Table reads the first table under a heading of docs/guards.md, for the tests of idemgrpc
// and idemhttp: its rows without the head, their cells.
func Table(t testing.TB, heading string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/guards.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, has := strings.Cut(string(page), "\n"+heading+"\n")
	if !has {
		t.Fatalf("the page has no %q", heading)
	}
	for line := range strings.Lines(section) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "|"):
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		case len(rows) > 0 || strings.HasPrefix(line, "#"):
			return rows[min(2, len(rows)):]
		}
	}
	return rows[min(2, len(rows)):]
}

// Reasons are all that guards give, as their source has them.
func Reasons(t testing.TB) (all []string) {
	t.Helper()
	source, err := os.ReadFile("../internal/guard/words.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`Reason\s+= "([A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		all = append(all, found[1])
	}
	if len(all) == 0 {
		t.Fatal("there are no reasons")
	}
	return all
}

package reservation

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// situation names one value for each column of the tables in docs/state-machine.md.
type situation map[string]string

// row is one row of a table: what must be the case, and what is said then.
type row struct {
	conditions     situation
	answer, record string
}

// docTables reads the tables of docs/state-machine.md by their headings.
func docTables(t *testing.T) map[string][]row {
	t.Helper()
	tables := make(map[string][]row)
	var heading string
	var columns []string
	for line := range strings.Lines(readDoc(t)) {
		line = strings.TrimSpace(line)
		if title, is := strings.CutPrefix(line, "## "); is {
			heading, columns = title, nil
			continue
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if columns == nil {
			columns = cells
			continue
		}
		if len(cells) != len(columns) {
			t.Fatalf("a row of %s has %d cells, want %d: %s", heading, len(cells), len(columns), line)
		}
		r := row{conditions: situation{}}
		for i, column := range columns {
			switch column {
			case "Answer":
				r.answer = cells[i]
			case "Record":
				r.record = cells[i]
			default:
				r.conditions[column] = cells[i]
			}
		}
		tables[heading] = append(tables[heading], r)
	}
	return tables
}

func readDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/state-machine.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (r row) fits(s situation) bool {
	for column, cell := range r.conditions {
		// "used up" fits "all 100 used up" too.
		fits := func(word string) bool {
			return s[column] == word || word == "used up" && strings.HasSuffix(s[column], word)
		}
		if cell != "any" && !slices.ContainsFunc(strings.Split(cell, ", "), fits) {
			return false
		}
	}
	return true
}

// Every situation has a stated answer, and Decide gives it; every row is the answer
// to some situation.
func TestDocumentedTablesAreWhatDecideDoes(t *testing.T) {
	tables := docTables(t)
	edges := map[string]bool{}
	for heading, cases := range allCases() {
		rows := tables[heading]
		used := make([]bool, len(rows))
		for _, c := range cases {
			next, out := Decide(c.now, c.rec, c.cmd)
			answer, record := sayOutcome(out), sayChange(c.rec, next, c.now)
			at := slices.IndexFunc(rows, func(r row) bool { return r.fits(c.situation) })
			if at < 0 {
				t.Errorf("%s: no row fits %v, which is answered %s", heading, c.situation, answer)
				continue
			}
			used[at] = true
			if want := rows[at]; want.answer != answer || want.record != record {
				t.Errorf("%s %v\n documented: %s, %s\n decided:    %s, %s", heading, c.situation, want.answer, want.record, answer, record)
			}
			if next != c.rec {
				edges[fmt.Sprintf("%s --> %s: %s", stored(c.rec, c.now), next.State, heading)] = true
				if err := next.Check(); err != nil {
					t.Errorf("%s %v makes an impossible record: %v", heading, c.situation, err)
				}
				checkVersion(t, heading, c, next, record)
			}
		}
		for i, r := range rows {
			if !used[i] {
				t.Errorf("%s: this row is never the answer: %v %s", heading, r.conditions, r.answer)
			}
		}
		t.Logf("%s: %d situations, %d rows", heading, len(cases), len(rows))
	}
	compareDiagram(t, edges)
}

// checkVersion: every stored change adds 1, but for the evidence of strangers and of
// a Fail, which add none, and for a new record.
func checkVersion(t *testing.T, heading string, c testCase, next *Record, record string) {
	t.Helper()
	var want int64
	switch {
	case c.rec == nil:
		want = next.Fence
	case c.rec.Expired(c.now):
		want = max(next.Fence, c.rec.Version+1)
	case record == "evidence":
		want = c.rec.Version
	default:
		want = c.rec.Version + 1
	}
	if next.Version != want {
		t.Errorf("%s %v: the version goes from %v to %d, want %d", heading, c.situation, c.rec, next.Version, want)
	}
}

func compareDiagram(t *testing.T, edges map[string]bool) {
	t.Helper()
	drawn := map[string]bool{}
	for _, edge := range regexp.MustCompile(`[A-Z_]+ --> [A-Z_]+: [A-Z][a-z]+`).FindAllString(readDoc(t), -1) {
		drawn[edge] = true
	}
	for _, edge := range slices.Sorted(maps.Keys(edges)) {
		if !drawn[edge] && !isEvidence(edge) {
			t.Errorf("the diagram lacks %s", edge)
		}
	}
	for edge := range drawn {
		if !edges[edge] {
			t.Errorf("the diagram has %s, which never happens", edge)
		}
	}
}

// isEvidence: a refused Complete or Fail leaves the state as it is.
func isEvidence(edge string) bool {
	from, rest, _ := strings.Cut(edge, " --> ")
	to, command, _ := strings.Cut(rest, ": ")
	return from == to && (command == "Complete" || command == "Fail")
}

func stored(rec *Record, now Time) State {
	if rec == nil || rec.Expired(now) {
		return Absent
	}
	return rec.State
}

// sayOutcome is an outcome in the words of the tables.
func sayOutcome(out Outcome) string {
	switch o := out.(type) {
	case *Owned:
		switch {
		case o.Repeated:
			return "OWNED again"
		case o.Takeover:
			return "OWNED, takeover"
		}
		return "OWNED"
	case *InProgress:
		return "IN_PROGRESS"
	case *Replay:
		return "REPLAY"
	case *Unresolved:
		return "UNRESOLVED"
	case *Extended:
		return "EXTENDED"
	case *Recorded:
		if o.Repeated {
			return "RECORDED again"
		}
		return "RECORDED"
	case *Found:
		return "FOUND " + o.Shown.String()
	case *Error:
		return string(o.Reason)
	}
	return fmt.Sprintf("%T", out)
}

// sayChange is what became of a record in the words of the tables.
func sayChange(before, after *Record, now Time) string {
	switch {
	case after == before:
		return "unchanged"
	case before == nil || before.Expired(now):
		return fmt.Sprintf("%s, attempt %d", after.State, after.Attempt)
	case after.Attempt > before.Attempt:
		return fmt.Sprintf("%s, attempt + %d", after.State, after.Attempt-before.Attempt)
	case len(after.Evidence) > len(before.Evidence) && after.Version > before.Version:
		return "evidence, version + 1"
	case len(after.Evidence) > len(before.Evidence):
		return "evidence"
	case after.ErasedAt != before.ErasedAt && after.ErasedAt != 0:
		return after.State.String() + ", erased"
	case after.State == Processing && after.LeaseExpiresAt > before.LeaseExpiresAt:
		return "PROCESSING, new lease"
	}
	return after.State.String()
}

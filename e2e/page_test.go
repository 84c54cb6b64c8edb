package e2e

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/e2e/fault"
	"github.com/idemd/idemd/e2e/harness"
	"github.com/idemd/idemd/examples/charge/child"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// endingRow is a row of a table in docs/ that says how something can end.
type endingRow struct{ ending, mode, stored, returns, hears string }

type namedMode struct {
	name string
	mode idem.Mode
}

func (r endingRow) modes(t *testing.T) []namedMode {
	external, transactional := namedMode{"External", idem.External}, namedMode{"Transactional", idem.Transactional}
	switch r.mode {
	case "any":
		return []namedMode{external, transactional}
	case external.name:
		return []namedMode{external}
	case transactional.name:
		return []namedMode{transactional}
	}
	t.Fatalf("there is no mode %q", r.mode)
	return nil
}

// endingRows are the rows of the table under a heading of a page of docs/, whose first
// cell says who ends.
func endingRows(t *testing.T, page, heading, who string) (rows []endingRow) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n##")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| "+who+" ends with") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, endingRow{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	return rows
}

// mustBeWhole checks that a table tells of each ending in each mode once, and of nothing
// else. only are the endings that there are in one mode.
func mustBeWhole(t *testing.T, rows []endingRow, endings iter.Seq[string], only map[string]string) {
	t.Helper()
	type place struct{ ending, mode string }
	told, known := map[place]endingRow{}, map[string]bool{}
	for _, row := range rows {
		for _, mode := range row.modes(t) {
			at := place{row.ending, mode.name}
			if _, twice := told[at]; twice {
				t.Errorf("the page tells twice of %q, %s", at.ending, at.mode)
			}
			told[at] = row
		}
	}
	for ending := range endings {
		known[ending] = true
		for _, mode := range []string{"External", "Transactional"} {
			_, is := told[place{ending, mode}]
			if want := only[ending] == "" || only[ending] == mode; is != want {
				t.Errorf("the page tells of %q in %s: %v, want %v", ending, mode, is, want)
			}
		}
	}
	for at, row := range told {
		if !known[at.ending] {
			t.Errorf("nobody knows how to walk %q", at.ending)
		}
		other := told[place{at.ending, "External"}]
		if at.mode == "Transactional" && row.mode != "any" && other.stored == row.stored && other.returns == row.returns && other.hears == row.hears {
			t.Errorf("what the page tells of %q is true in any mode", at.ending)
		}
	}
}

// walker is one row on its way.
type walker interface {
	// first and retry ask the replica on which the row happens, and another one
	// afterwards. They tell what is heard in the page's words, and in full.
	first() (said, full string)
	retry() (said, full string)
	mustBeStored(want string)
	healed()
}

// page is a table and the ways in which its rows can come about, by their names.
type page[W walker] struct {
	rows  []endingRow
	begin func(*testing.T, *child.Daemon, string, idem.Mode) W
	ways  map[string][]func(W)
}

// walk walks each row in each of its modes and ways, on each store.
func (p page[W]) walk(t *testing.T) {
	mustBeWhole(t, p.rows, maps.Keys(p.ways), nil)
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		d := house.Serve(t, s)
		for i, row := range p.rows {
			for j, way := range p.ways[row.ending] {
				for _, mode := range row.modes(t) {
					t.Run(fmt.Sprintf("%.60s, %s, %d", row.ending, mode.name, j), func(t *testing.T) {
						w := p.begin(t, d, fmt.Sprintf("row-%d-%d-%s", i, j, mode.name), mode.mode)
						way(w)
						wantSaid(t, "the caller", w.first, row.returns)
						w.healed()
						w.mustBeStored(row.stored)
						wantSaid(t, "the retry", w.retry, row.hears)
					})
				}
			}
		}
	})
}

func wantSaid(t *testing.T, who string, ask func() (said, full string), want string) {
	t.Helper()
	if said, full := ask(); said != want {
		t.Errorf("%s hears %s (%s), want %s", who, said, full, want)
	}
}

// guardWalk is what the rows of both transports share: a replica whose idemd is behind a
// proxy, and another one, for the retry, that reaches it directly.
type guardWalk struct {
	*testing.T
	key    string // empty: there is none
	daemon *child.Daemon
	proxy  *fault.GRPC
	// options are those of the first replica's client.
	options idem.Options
	// heal is done once the caller has its answer.
	heal func()
}

func newGuardWalk(t *testing.T, d *child.Daemon, key string) guardWalk {
	return guardWalk{T: t, key: key, daemon: d, proxy: harness.GRPC(t, d.GRPC), heal: func() {}}
}

func (w *guardWalk) healed() { w.heal() }

// loseComplete loses what the first replica tells its daemon at the end.
func (w *guardWalk) loseComplete() {
	w.options.FinishTimeout = 100 * time.Millisecond
	w.proxy.Break(fault.On(completeMethod, fault.LoseRequest))
}

func (w *guardWalk) mustBeStored(want string) {
	w.Helper()
	direct := dial(w.T, w.daemon.GRPC)
	harness.Until(w, "the state "+want, func() bool {
		if w.key == "" {
			return want == "nothing"
		}
		answer, err := direct.Lookup(harness.Bounded(w.T), &idemdv1.LookupRequest{Tenant: "acme", Key: w.key})
		if status.Code(err) == codes.NotFound {
			return want == "nothing"
		}
		return answer.GetReservation().GetState().String() == "STATE_"+want
	})
}

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// lines prints tables of one line an entry, page by page.
type lines struct {
	out    io.Writer
	header []string
}

func newLines(out io.Writer, header ...string) *lines { return &lines{out, header} }

// print prints lines, below the header where they are the first.
func (l *lines) print(rows [][]string) error {
	w := tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	if l.header != nil {
		_, _ = fmt.Fprintln(w, strings.Join(l.header, "\t"))
		l.header = nil
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine(cell)
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// oneLine keeps a cell within its line, and a terminal from obeying it.
func oneLine(cell string) string {
	switch {
	case cell == "":
		return "-"
	case strings.ContainsFunc(cell, unicode.IsControl):
		return strconv.Quote(cell)
	}
	return cell
}

// short is the name of an enum's value without what all begin with; empty where unset.
func short(value fmt.Stringer, prefix string) string {
	name := strings.TrimPrefix(value.String(), prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return name
}

func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format(time.RFC3339)
}

// history prints what happened to a reservation off its plain path, oldest first.
func history(out io.Writer, entries []*idemdv1.HistoryEntry, dropped int64) error {
	if len(entries) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if dropped > 0 {
		if _, err := fmt.Fprintf(out, "%d entries were dropped to keep within the bounds\n", dropped); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, e := range entries {
		state := short(e.GetFrom(), "STATE_")
		if e.GetTo() != e.GetFrom() {
			state += " > " + short(e.GetTo(), "STATE_")
		}
		rows = append(rows, []string{
			clock(e.GetAt()), short(e.GetKind(), "HISTORY_KIND_"), strconv.Itoa(int(e.GetAttempt())), e.GetOwner(), state,
			short(e.GetOutcome(), "OUTCOME_KIND_"), e.GetActor(), e.GetReason(), e.GetEvidence(),
		})
	}
	return newLines(out, "AT", "WHAT", "ATTEMPT", "OWNER", "STATE", "SAID", "ACTOR", "REASON", "EVIDENCE").print(rows)
}

package torture

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// mostViolations bounds how many histories are printed.
const mostViolations = 10

// report prints what happened, and fails if a rule was broken.
func (w *world) report(worked time.Duration) error {
	var charged, declined, expired, open, violated int
	causes, shown := map[string]int{}, 0
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w.config.Out, format+"\n", args...) }
	for _, o := range w.operations {
		violations, cause := w.verify(o)
		if len(violations) > 0 {
			if violated++; violated <= mostViolations {
				say("VIOLATION: %q\n%s", violations, o.history())
			}
		}
		switch e := o.end; {
		case e.receipt != "":
			charged++
		case e.declined:
			declined++
		case e.expired:
			expired++
		case e.unresolved != nil:
			open++
			causes[cause]++
			if shown++; shown <= w.config.Show {
				say("unresolved: %s, attempt %d, since %s: %s", o.order, e.unresolved.Attempt, e.unresolved.Since.Format(time.RFC3339Nano), cause)
			}
		}
	}
	if shown > w.config.Show {
		say("unresolved: and %d more", shown-w.config.Show)
	}
	say("clients heard: %d done, %d replays, %d in progress, %d not executed, %d declined, %d unresolved, %d too old, %d no answer",
		w.counts.get(heardDone), w.counts.get(heardReplay), w.counts.get(heardInProgress), w.counts.get(heardNotExecuted),
		w.counts.get(heardDeclined), w.counts.get(heardUnresolved), w.counts.get(heardExpired), w.counts.get(heardNothing))
	say("the bank was asked %d times what became of an unresolved one", w.counts.get(askedBank))
	say("in the end: %d charged, %d declined, %d forgotten after their retention, %d unresolved", charged, declined, expired, open)
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		say("  %d: %s", causes[cause], cause)
	}
	say("%d attempts granted, %d effects, %d kills, %d records swept, %v of work and %v of settling", w.counts.get(granted), w.ledger.Total(),
		len(w.outages), w.swept, worked.Round(time.Millisecond), (w.now() - worked).Round(time.Millisecond))
	if n, longest := w.stalled(); n > 0 {
		say("this process was stalled %d times, for up to %v: the machine has too much to do", n, longest.Round(time.Millisecond))
	}
	if len(w.outages) != w.config.Kills {
		return fmt.Errorf("the daemon was killed %d times, want %d", len(w.outages), w.config.Kills)
	}
	if expired > 100 && w.swept == 0 {
		return fmt.Errorf("%d records were forgotten, and none was swept (seed %d)", expired, w.config.Seed)
	}
	if violated > 0 {
		return fmt.Errorf("%d operations break a rule (seed %d)", violated, w.config.Seed)
	}
	say("no operation has two effects, none is forgotten, every unresolved one is explained")
	return nil
}

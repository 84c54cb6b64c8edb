package reservation

import "slices"

// remember adds an entry and drops the oldest beyond MaxHistory.
func (r *Record) remember(entry HistoryEntry) {
	r.History = append(slices.Clip(r.History), entry)
	if len(r.History) > MaxHistory {
		r.History = r.History[1:]
		r.HistoryDropped++
	}
}

func (r *Record) hasEvidence(entry HistoryEntry) bool {
	return slices.ContainsFunc(r.Evidence, func(e HistoryEntry) bool {
		return e.TokenDigest == entry.TokenDigest && e.Outcome == entry.Outcome && e.ResultDigest == entry.ResultDigest
	})
}

// addEvidence adds an entry. Beyond MaxEvidence the oldest of a stranger makes room;
// where there is none, a stranger's entry is only counted, and an owner's pushes out
// the oldest.
func (r *Record) addEvidence(entry HistoryEntry) {
	r.Evidence = append(slices.Clone(r.Evidence), entry)
	if len(r.Evidence) <= MaxEvidence {
		return
	}
	drop := max(0, slices.IndexFunc(r.Evidence, func(e HistoryEntry) bool { return e.Attempt == 0 }))
	r.Evidence = slices.Delete(r.Evidence, drop, drop+1)
	r.HistoryDropped++
}

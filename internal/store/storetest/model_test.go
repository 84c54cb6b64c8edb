package storetest

import (
	"testing"
)

func TestTheReferenceAgreesWithItself(t *testing.T) {
	Model(t, map[string]Open{"a second one": OpenMem})
}

// Scripts find what is wrong with a store without knowing what to look for. Left out is
// what takes a rival, a context or an answer that no script compares.
func TestScriptsFindDefects(t *testing.T) {
	const most = 400
	beyond := map[Defect]string{
		IgnoresContext:  "no script ends a context",
		ReadsBeforeLock: "a script is one caller",
		ClockBeforeLock: "a script is one caller",
		WaitsForRivals:  "a script is one caller",
	}
	for _, defect := range Defects() {
		if beyond[defect] != "" {
			continue
		}
		t.Run(string(defect), func(t *testing.T) {
			for seed := range most {
				failures := watch(func(w T) {
					g := openGroup(t, map[string]Open{"broken": func(testing.TB) *Harness { return openDefective(defect) }})
					g.play(w, scripts().Example(seed))
				})
				if len(failures) > 0 {
					t.Logf("found by script %d: %.200s", seed, failures[0])
					return
				}
			}
			t.Errorf("%d scripts did not find it", most)
		})
	}
}

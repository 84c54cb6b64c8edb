package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

func TestTheReferencePasses(t *testing.T) { Run(t, OpenMem) }

// Every defect must be found by at least one case.
func TestEveryDefectIsFound(t *testing.T) {
	for _, defect := range Defects() {
		t.Run(string(defect), func(t *testing.T) {
			var found []string
			for _, c := range Cases() {
				h := openDefective(defect)
				if h.missing(c.Needs) != "" {
					continue
				}
				if failures := watch(func(w T) { c.run(w, h) }); len(failures) > 0 {
					found = append(found, c.Rule+": "+failures[0])
				}
			}
			if len(found) == 0 {
				t.Fatal("no case fails")
			}
			t.Logf("found by %d cases, the first: %s", len(found), found[0])
		})
	}
}

// Every case must be able to fail: some defect is found by it, or it says why none
// of a plain map can be.
func TestEveryCaseCanFail(t *testing.T) {
	beyondAMap := map[string]string{
		"everything outlives the process":                           "a map keeps nothing",
		"a closed store can't answer, and says so":                  "a map keeps nothing",
		"a damaged record is kept and reported, and hides no other": "a map encodes nothing",
		"an empty batch is answered with nothing":                   "it can only panic",
	}
	for _, c := range Cases() {
		if beyondAMap[c.Rule] != "" {
			continue
		}
		failed := false
		for _, defect := range Defects() {
			h := openDefective(defect)
			failed = failed || len(watch(func(w T) { c.run(w, h) })) > 0
		}
		if !failed {
			t.Errorf("no defect makes this case fail: %s", c.Rule)
		}
	}
}

// watcher is a T that only notes what fails.
type watcher struct {
	mu       sync.Mutex
	failures []string
}

func watch(run func(T)) []string {
	w := new(watcher)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(w)
	}()
	<-done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failures
}

func (w *watcher) Helper()             {}
func (w *watcher) Logf(string, ...any) {}
func (w *watcher) Errorf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

func (w *watcher) Fatalf(format string, args ...any) {
	w.Errorf(format, args...)
	runtime.Goexit()
}

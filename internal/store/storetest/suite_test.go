package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

func TestTheReferencePasses(t *testing.T) { Run(t, OpenMem) }

// Every defect must be found by some case, and every case must be able to fail: some
// defect is found by it, or it says why none of a plain map can be.
func TestEveryDefectIsFoundAndEveryCaseCanFail(t *testing.T) {
	beyondAMap := map[string]string{
		"everything outlives the process":                           "a map keeps nothing",
		"acts outlive the process, and their ids go on":             "a map keeps nothing",
		"a closed store can't answer, and says so":                  "a map keeps nothing",
		"a damaged record is kept and reported, and hides no other": "a map encodes nothing",
		"an empty batch is answered with nothing":                   "it can only panic",
	}
	findings := make(map[Defect]map[string]string) // defect → rule → first failure
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, defect := range Defects() {
		running.Go(func() {
			found := findingsOf(defect)
			mu.Lock()
			defer mu.Unlock()
			findings[defect] = found
		})
	}
	running.Wait()
	finds := make(map[string]int) // rule → defects
	for _, defect := range Defects() {
		if len(findings[defect]) == 0 {
			t.Errorf("no case fails on a store that %s", defect)
		}
		for rule, failure := range findings[defect] {
			finds[rule]++
			t.Logf("%s: %s: %.150s", defect, rule, failure)
		}
	}
	for _, c := range Cases() {
		if finds[c.Rule] == 0 && beyondAMap[c.Rule] == "" {
			t.Errorf("no defect makes this case fail: %s", c.Rule)
		}
	}
}

// findingsOf runs every case on a store with a defect.
func findingsOf(defect Defect) map[string]string {
	found := make(map[string]string)
	for _, c := range Cases() {
		h := openDefective(defect)
		if h.missing(c.Needs) != "" {
			continue
		}
		if failures := watch(func(w T) { c.run(w, h) }); len(failures) > 0 {
			found[c.Rule] = failures[0]
		}
	}
	return found
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

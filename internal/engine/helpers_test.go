package engine

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, l := range q.lanes.ring {
		n += len(l.waiting)
	}
	return n
}

func (q *queue) isDraining() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.draining
}

// waitFor waits until something is the case that other goroutines bring about.
func waitFor(t *testing.T, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !reached(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("waited for 30 s in vain")
		}
	}
}

func refusedWith(err error, reason reservation.Reason) bool {
	var refusal *reservation.Error
	return errors.As(err, &refusal) && refusal.Reason == reason
}

func contains(text, word string) bool { return strings.Contains(text, word) }

package relay

import (
	"testing"
	"time"
)

func TestTheDefaultPauseGrowsFromASecondToFiveMinutes(t *testing.T) {
	for n, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 100: 5 * time.Minute} {
		for range 20 {
			if got := backoff(n); got > want || got < want*3/4 {
				t.Errorf("after %d attempts: %v, want %v less up to a quarter", n, got, want)
			}
		}
	}
}

package fingerprint

import (
	"testing"
	"unicode"
)

// Every character folds to the least of those that differ from it in case only.
func TestNamesThatDifferInCaseOnlyFoldToOne(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		if got := fold([]byte(string(r))); got != string(least) {
			t.Fatalf("%U folds to %+q, want %U", r, got, least)
		}
	}
}

package idem

import (
	"regexp"
	"testing"
	"testing/synctest"
	"time"
)

func TestANewKeyHasItsTimeAndIsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
		seen := map[string]bool{}
		for range 1000 {
			<-time.After(700 * time.Microsecond) // of the bubble's time
			key := NewKey()
			at, is := KeyTime(key)
			if !is || !at.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Fatalf("%s: %v, %v, want %v", key, at, is, time.Now())
			}
			if !shape.MatchString(key) || seen[key] {
				t.Fatalf("%s is not a new UUID of version 7", key)
			}
			seen[key] = true
		}
	})
}

// The example of RFC 9562, appendix A.6.
func TestTheTimeOfAnybodysVersion7IsRead(t *testing.T) {
	want := time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC)
	for _, key := range []string{"017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"} {
		if at, is := KeyTime(key); !is || !at.Equal(want) {
			t.Errorf("%s: %v, %v", key, at, is)
		}
	}
	for _, key := range []string{
		"", "order-1042", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "017f22e2-79b0-7cc3-18c4-dc0c0c07398f", "017f22e279b07cc398c4dc0c0c07398f",
		" 017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n", DeriveKey("a"),
	} {
		if at, is := KeyTime(key); is {
			t.Errorf("%q is said to be of %v", key, at)
		}
	}
}

func TestPartsOfAKeyDoNotRunTogether(t *testing.T) {
	lists := [][]string{{"a"}, {"a", ""}, {"", "a"}, {"a", "b"}, {"ab"}, {"", "ab"}, {"a", "", "b"}, {"b", "a"}, {"A", "b"}, {""}, {"", ""}}
	seen := map[string][]string{}
	for _, l := range lists {
		for _, id := range []string{DeriveKey(l[0], l[1:]...), DeterministicID(l[0], l[1:]...), DeterministicID("order", l...)} {
			if other, is := seen[id]; is {
				t.Errorf("%q and %q are both %s", l, other, id)
			}
			seen[id] = l
		}
	}
}

// The vectors were computed apart from this code, as those of derived keys.
func TestDeterministicIDsNeverChange(t *testing.T) {
	for _, v := range []struct {
		want, prefix string
		parts        []string
	}{
		{"invite_42273af14a92868a5f6a8a632115c629", "invite", []string{"acme", "ann@example.com"}},
		{"invite_971f116e8fd93742c01b10fab0dad706", "invite", nil},
		{"_321aab7c9fd4692f1a42d8ed916904fc", "", []string{"x"}},
		{"invite_13f43c6883f74e12a9e3199e764bc4bb", "invite", []string{"acme", "ä"}},
	} {
		if got := DeterministicID(v.prefix, v.parts...); got != v.want {
			t.Errorf("%s, %q: %s, want %s", v.prefix, v.parts, got, v.want)
		}
	}
}

package mailserver

import (
	"errors"
	"net/http/httptest"
	"testing"
)

func TestAMailServerDeliversWhatItIsHandedAsOftenAsItIsHandedIt(t *testing.T) {
	server := httptest.NewServer(New())
	defer server.Close()
	client := NewClient(server.URL)
	for _, mail := range []Mail{{"k1", "alice", 1}, {"k1", "alice", 1}, {"k2", "bob", 2}} {
		if err := client.Send(t.Context(), mail); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]int{"k1": 2, "k2": 1, "k3": 0, "": 3} {
		if found, err := client.Find(t.Context(), key); err != nil || len(found) != want {
			t.Errorf("under %q there are %v (%v), want %d", key, found, err, want)
		}
	}
}

func TestAMailThatCanNotBeMeantIsRefusedForGood(t *testing.T) {
	server := httptest.NewServer(New())
	defer server.Close()
	if err := NewClient(server.URL).Send(t.Context(), Mail{Key: "k"}); !errors.Is(err, ErrRefused) {
		t.Errorf("the error is %v", err)
	}
}

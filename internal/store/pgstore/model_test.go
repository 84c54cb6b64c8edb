package pgstore

import (
	"testing"

	"github.com/idemd/idemd/internal/store"
	"github.com/idemd/idemd/internal/store/storetest"
)

func TestModel(t *testing.T) {
	storetest.Model(t, map[string]storetest.Open{
		"postgres": func(t testing.TB) *storetest.Harness { return openWith(t, "") },
	})
}

// Two daemons on one database.
func TestLinearizable(t *testing.T) {
	open := func(t testing.TB) *storetest.Harness { return openWith(t, "") }
	storetest.Linearizable(t, open, func(t testing.TB, h *storetest.Harness) store.Store {
		return openStore(t, Options{DSN: h.Store.(*Store).options.DSN})
	})
}

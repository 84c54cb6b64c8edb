package pgstore

import (
	"testing"

	"github.com/idemd/idemd/internal/store/storetest"
)

func TestModel(t *testing.T) {
	storetest.Model(t, map[string]storetest.Open{
		"postgres": func(t testing.TB) *storetest.Harness { return openWith(t, "") },
	})
}

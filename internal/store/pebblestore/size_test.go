package pebblestore

import (
	"testing"

	"github.com/idemd/idemd/internal/store/storetest"
)

func TestWhatRecordsTakeIsToldOfEachTenantAndNamespace(t *testing.T) {
	storetest.CheckSizes(t, open(t).Store)
}

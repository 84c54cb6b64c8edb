package pgstore

import (
	"testing"

	"github.com/idemd/idemd/internal/store/storetest"
)

func TestWhatRecordsTakeIsToldOfEachTenantAndNamespace(t *testing.T) {
	for _, parameters := range []string{"", "&default_query_exec_mode=exec"} {
		storetest.CheckSizes(t, openWith(t, parameters).Store)
	}
}

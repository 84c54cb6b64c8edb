package pebblestore

import (
	"os"
	"testing"
)

// childDir names the directory in which this test binary is to apply commands until
// it is killed.
const childDir = "IDEMD_TEST_PEBBLESTORE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		beKilled(dir)
		return
	}
	os.Exit(m.Run())
}

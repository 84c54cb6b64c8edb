package pebblestore

import (
	"testing"

	"github.com/idemd/idemd/internal/store/storetest"
)

func TestModel(t *testing.T) { storetest.Model(t, map[string]storetest.Open{"pebble": open}) }

func TestLinearizable(t *testing.T) { storetest.Linearizable(t, open, nil) }

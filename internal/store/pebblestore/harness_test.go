package pebblestore

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/idemd/idemd/internal/reservation"
	"github.com/idemd/idemd/internal/store/storetest"
)

// quiet drops log lines below errors.
func quiet(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelError}))
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func mustOpen(t testing.TB, options Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open makes a fresh store in memory for the conformance suite.
func open(t testing.TB) *storetest.Harness {
	var now atomic.Int64
	now.Store(int64(storetest.Start))
	options := Options{
		Dir:    "data",
		FS:     vfs.NewMem(),
		Clock:  func() reservation.Time { return reservation.Time(now.Load()) },
		Logger: quiet(t),
	}
	s := mustOpen(t, options)
	h := &storetest.Harness{
		Store:    s,
		SetClock: func(at reservation.Time) { now.Store(int64(at)) },
		Hold:     nil, // one process serves a directory: there is no rival
		Damage: func(address reservation.Address) {
			if err := s.db.Set(recordKey(address), []byte("garbage"), pebble.Sync); err != nil {
				t.Fatal(err)
			}
		},
	}
	h.Reopen = func() {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustOpen(t, options)
		h.Store = s
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

// noise is bytes that do not compress.
func noise(seed, size int) []byte {
	body := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(body)
	return body
}

package pebblestore

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// pebbleLogger hands Pebble's messages on. They name files, never reservations.
type pebbleLogger struct {
	logger *slog.Logger
	exit   func(code int)
}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is called where Pebble can't go on, such as with a manifest that can't be
// written, and must not return. What was acknowledged is in the log and is replayed
// by the next process.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.logger.Error("the store can't go on, the process ends; what was acknowledged is safe: " + fmt.Sprintf(format, args...))
	l.exit(1)
}

// events are those of Pebble's events that an operator must see. That tables can't be
// written is also told to cantWrite.
func events(logger *slog.Logger, cantWrite func(error)) *pebble.EventListener {
	seldom, seldomDamage := &limiter{every: 10 * time.Second}, &limiter{every: 10 * time.Second}
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if !pebble.IsCorruptionError(err) { // a damaged block hides only what is in it
				cantWrite(err)
			}
			// Pebble tries again at once and without end.
			if seldom.pass() {
				logger.Error("the store can't write its tables; writes stall when memory is full", "error", err)
			}
		},
		// By default this ends the process. A damaged block must not hide the rest:
		// what is in it is answered STORE_UNAVAILABLE, everything else as usual.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			if seldomDamage.pass() {
				logger.Error("the store has a damaged file; restore it from a backup", "path", info.Path, "error", info.Details)
			}
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			logger.Warn("the store's disk is slow", "operation", info.OpType.String(), "duration", info.Duration)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			logger.Warn("the store stalls: its disk can't keep up", "reason", info.Reason)
		},
		WriteStallEnd: func() { logger.Warn("the store goes on after a stall") },
	}
}

// limiter lets one message through each while.
type limiter struct {
	every time.Duration

	mu   sync.Mutex
	last time.Time
}

func (l *limiter) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < l.every {
		return false
	}
	l.last = now
	return true
}

package pebblestore

import "time"

// Metrics are what an operator watches beside Stats.
type Metrics struct {
	// DiskBytes is what the directory takes up.
	DiskBytes uint64
	// DiskFree is what is free on its disk; zero where that can't be told.
	DiskFree uint64
	// CompactionDebt estimates the bytes that are still to be compacted.
	CompactionDebt uint64
	// Waiting is how many calls wait for an fsync now.
	Waiting int64
	// ClockAhead is by how much the store's clock is ahead of the wall: it is not 0
	// for long only after the wall was set back.
	ClockAhead time.Duration
	// Failed: a write or an fsync of the log failed, and nothing is answered until the
	// store is opened again.
	Failed bool
}

// Metrics reads them. It takes no lock that writers hold for long.
func (s *Store) Metrics() Metrics {
	m := Metrics{
		Waiting:    s.waiting.Load(),
		ClockAhead: time.Duration(s.ahead.Load()),
		Failed:     s.failure() != nil,
	}
	if !s.users.TryRLock() { // it is being closed
		return m
	}
	defer s.users.RUnlock()
	select {
	case <-s.closing:
	default:
		engine := s.db.Metrics()
		m.DiskBytes, m.CompactionDebt, m.DiskFree = engine.DiskSpaceUsage(), engine.Compact.EstimatedDebt, s.diskFree()
	}
	return m
}

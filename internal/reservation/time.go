package reservation

import "time"

// Time is a point in time by a store's clock, in whole microseconds since the Unix
// epoch. Zero means "not set".
type Time int64

// TimeOf cuts t down to whole microseconds.
func TimeOf(t time.Time) Time { return Time(t.UnixMicro()) }

// Add moves t by d. Durations are rounded up to whole microseconds, so that a lease
// is never shorter than the caller, who counts on its own clock, believes.
func (t Time) Add(d time.Duration) Time { return t + Time(ceilMicros(d)) }

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t-u) * time.Microsecond }

// Time converts to the standard library's type, in UTC.
func (t Time) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }

// wholeMicros rounds a duration up to what is stored of it.
func wholeMicros(d time.Duration) time.Duration {
	return time.Duration(ceilMicros(d)) * time.Microsecond
}

func ceilMicros(d time.Duration) int64 {
	micros := d.Microseconds()
	if d > time.Duration(micros)*time.Microsecond {
		micros++
	}
	return micros
}

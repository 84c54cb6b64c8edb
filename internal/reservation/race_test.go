//go:build race

package reservation

// raceDetector: the search has one goroutine and no races to find; under the detector
// it is many times slower and searches less.
const raceDetector = true

//go:build !race

package reservation

const raceDetector = false

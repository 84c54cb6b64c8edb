//go:build race || !cgo

package daemon

// otherMemory says what else is on the heap.
const otherMemory = "the race detector remembers what is touched; without cgo Pebble's caches are on the heap"

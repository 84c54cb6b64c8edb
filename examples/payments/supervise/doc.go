// Package supervise runs programs as child processes, starts again what dies, and stops
// them all in order.
//
// It may import the standard library only.
package supervise

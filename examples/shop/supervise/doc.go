// Package supervise runs programs as child processes, starts again what dies, kills them
// when it is told to, and stops them all in order.
//
// It may import the standard library only.
package supervise

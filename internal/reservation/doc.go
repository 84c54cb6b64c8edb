// Package reservation is the state machine of idemd: what a reservation is, which
// calls may change it and what each call is answered. It is pure: no I/O, no
// clock, no randomness. Both stores execute [Decide]; docs/state-machine.md draws
// it.
//
// It may import the standard library only.
package reservation

// Package child runs idemd as a child process that can be killed with -9, paused, and
// started again on the same store and at the same addresses.
//
// It may import the standard library only.
package child

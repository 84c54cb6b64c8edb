// Package e2e holds the tests that go across everything: real daemons as child
// processes, on both stores, with faults in the networks around them. It has no code
// of its own; what the tests share lies in harness and fault.
//
// It may import everything in this repository.
package e2e

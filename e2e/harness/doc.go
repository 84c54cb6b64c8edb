// Package harness gives tests real daemons on both stores, and connections to them.
//
// It may import examples/charge/child, e2e/fault, internal/pgtest, gRPC and the
// standard library.
package harness

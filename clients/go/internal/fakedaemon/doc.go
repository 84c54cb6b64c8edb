// Package fakedaemon is an idemd in memory, for tests of what stands on the Go client:
// the decisions of an empty store, without leases, retention and limits of its own. What
// a daemon really does is tested in e2e.
//
// It may import gen, grpc, protobuf, the error details that grpc itself needs, and the
// standard library.
package fakedaemon

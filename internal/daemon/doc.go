// Package daemon wires idemd together and runs it: configuration, store, engine,
// sweeper, gRPC and HTTP, from start to drain.
//
// It may import every package below it.
package daemon

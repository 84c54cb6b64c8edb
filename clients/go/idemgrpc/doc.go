// Package idemgrpc makes the calls of a gRPC server happen once: an interceptor around
// the handlers reserves, runs, records and replays; another one on the client's side
// sends a key. docs/guards.md tells what each ending of a handler leads to.
//
// Only unary calls are guarded: a stream has no single answer that could be replayed.
//
// It may import idem, fingerprint, internal/guard, grpc, protobuf, the error details that
// grpc itself needs, and the standard library.
package idemgrpc

// Package idem guards side effects with idemd: a caller wraps what must happen once in
// [Client.Do], and gets the whole protocol. docs/client.md tells what each ending of the
// wrapped function leads to.
//
// It may import gen, grpc, protobuf, the error details that grpc itself needs, and the
// standard library: whoever imports it pulls in nothing of the daemon's.
package idem

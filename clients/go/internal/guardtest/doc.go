// Package guardtest is the room in which the guards of both transports are tested: an
// idemd in memory, a client, and what is looked at afterwards.
//
// It may import idem, fakedaemon, gen, grpc, protobuf and the standard library.
package guardtest

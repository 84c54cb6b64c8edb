// Package fault stands between two ends and breaks the network between them: TCP for
// any protocol (cut, delay, an answer swallowed), GRPC for single calls (lost,
// repeated, delayed, reordered). Both listen on loopback.
//
// It may import gRPC and the standard library.
package fault

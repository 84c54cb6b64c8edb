// Package grpcserver speaks package idemd.v1: it turns requests into commands and
// outcomes into responses, maps every reason to a gRPC status in one place, and holds
// the interceptor chain. Proto types stop here.
//
// It may import packages engine, access, reservation and gen, gRPC and its middleware.
package grpcserver

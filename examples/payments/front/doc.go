// Package front is the HTTP front of payments: handlers behind a guard that call a
// guarded service.
//
// It may import clients/go (idem, idemgrpc, idemhttp, fingerprint), examples/payments/proto
// and refusal, gRPC and the standard library.
package front

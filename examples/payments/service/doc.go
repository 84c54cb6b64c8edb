// Package service is payments, the gRPC service: its effects and how they are guarded.
// This is the code to copy: guard.go says what each ending means, charge.go has an effect
// outside (a bank), accounts.go one in a database of its own.
//
// It may import clients/go/idem, clients/go/idemgrpc, examples/payments/bank,
// proto and refusal, gRPC, a driver for SQLite and the standard library.
package service

// Package torture charges many orders through every fault that can be made here, kills
// the daemon again and again, and checks the bank's ledger against what everybody heard.
// The faults are chosen by a seed; when they meet is up to the machine.
//
// It may import clients/go/idem, gen, the other packages of this example, gRPC and the
// standard library.
package torture

// Package torture charges many orders through every fault that can be made here, kills
// the daemon again and again, and checks the bank's ledger, what everybody heard, and every
// answer on the wire against one another. The faults are chosen by a seed; when they meet is up to the machine.
//
// It may import clients/go/idem, gen, the other packages of this example, gRPC,
// protobuf and the standard library.
package torture

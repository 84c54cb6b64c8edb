// Package shop is a service that charges orders, each exactly once: a bank behind one
// call of idemd's Go client. This is the code to copy.
//
// It may import clients/go/idem, examples/charge/bank and the standard library.
package shop

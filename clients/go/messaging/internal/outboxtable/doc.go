// Package outboxtable is what the writers of an outbox and its relays must agree on: the
// states of a row, the locks, the name of the channel.
//
// It may import pgtable and the standard library.
package outboxtable

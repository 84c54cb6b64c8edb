// Package bank is a pretend bank. It charges over HTTP and does NOT look for
// duplicates: whoever asks twice is charged twice, and its ledger shows it. Like the
// sandbox of a payment provider it pretends trouble where a request asks for it.
//
// It may import the standard library only.
package bank

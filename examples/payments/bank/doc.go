// Package bank is a pretend bank over HTTP, and its client. It knows a booking again by
// the reference that its caller gives it, and books twice where it is given none. Like the
// sandbox of a payment provider it makes trouble by the name of the card.
//
// It may import the standard library only.
package bank

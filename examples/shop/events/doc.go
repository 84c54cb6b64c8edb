// Package events is what the parts of the shop tell each other: the one contract between
// who writes an event and who reads it.
//
// It may import the standard library only.
package events

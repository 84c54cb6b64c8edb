// Package mailserver is a pretend mail server, as somebody else runs them: it delivers what
// it is handed as often as it is handed it, and can be asked for what it has delivered.
//
// It may import the standard library only.
package mailserver

// Package pgtest runs real PostgreSQL servers for tests: one of its own for a test
// that stops, kills or pauses it, one shared by a test package for all others. A
// missing PostgreSQL fails a test, it never skips it.
//
// It may import the standard library only.
package pgtest

// Package storetest is the conformance suite of the store interface: a table of
// cases, each run on a fresh store. A store is right if it passes; memstore, a plain
// map, is the reference it is compared with, and its deliberately broken variants
// prove that each case can fail.
//
// It may import packages store and reservation and is used by tests only.
package storetest

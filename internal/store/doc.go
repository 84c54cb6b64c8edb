// Package store is the interface between the engine and the two stores, and its law
// in prose. Whoever implements it must pass package storetest.
//
// It may import package reservation and the standard library.
package store

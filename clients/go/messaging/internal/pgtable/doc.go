// Package pgtable makes and migrates the tables of this module's packages, in a schema
// and under a name that the caller chooses.
//
// It may import pgx, goose and the standard library.
package pgtable

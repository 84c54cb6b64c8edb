// Package engine holds the use cases: it completes a call by its namespace's policy,
// validates it, gathers what arrives while the last batch is under way and has the
// store apply it as one batch, and answers each caller.
//
// It may import packages store and reservation.
package engine

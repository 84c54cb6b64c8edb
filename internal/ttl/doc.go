// Package ttl sweeps expired records from a store, in small batches with their own
// commits. Sweeping is only disk: no answer depends on it.
//
// It may import packages store and reservation.
package ttl

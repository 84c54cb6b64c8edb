// Package refusal has the reasons for which payments refuses, for its two sides.
//
// It may import gRPC and the standard library.
package refusal

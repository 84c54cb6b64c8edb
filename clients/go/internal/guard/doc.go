// Package guard is what the guards of both transports, idemgrpc and idemhttp, do alike:
// their vocabulary, reading keys, and telling what a Do's ending means for its caller.
//
// It may import idem, grpc's codes, metadata, status and error details, and the standard
// library.
package guard

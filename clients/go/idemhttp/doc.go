// Package idemhttp makes the requests of an HTTP server happen once: middleware around
// the handlers reserves, runs, records and replays; a RoundTripper on the client's side
// sends a key. docs/guards.md tells what each ending of a handler leads to.
//
// It may import idem, fingerprint, internal/guard, gen, grpc's codes and the standard
// library.
package idemhttp

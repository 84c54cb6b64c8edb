// Package inbox makes each message count once: a mark in the transaction of what the
// message does says that it is done, and with what result. Brokers deliver at least once;
// this is the other half.
//
// It may import pgx and this module's internal packages.
package inbox

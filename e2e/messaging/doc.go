// Package messaging holds the tests of clients/go/messaging with real brokers (NATS
// JetStream, PostgreSQL), real daemons and processes that are killed. It has no code of its
// own.
//
// It may import everything in this repository.
package messaging

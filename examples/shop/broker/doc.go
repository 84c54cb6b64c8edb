// Package broker is a NATS server with JetStream in this process, and how the parts of the
// shop publish to it and subscribe.
//
// It may import examples/shop/events, the NATS server and client, Watermill and its NATS
// package.
package broker

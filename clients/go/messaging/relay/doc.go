// Package relay sends the events of an outbox to a broker, each until the broker has
// acknowledged it.
//
// It may import outbox, pgx, Watermill's Publisher and Message, OpenTelemetry's API, and this
// module's internal packages.
package relay

// Package outbox writes events into the transaction of the business change that they tell
// of: both commit or neither does. Package relay sends them.
//
// It may import idem, pgx, OpenTelemetry's API, and this module's internal packages.
package outbox

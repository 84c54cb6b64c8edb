// Package consume has middleware for Watermill's router that makes the handling of each
// message count once: SQL for handlers whose effect is in the database of an inbox, Idem for
// those whose effect is outside, by way of idemd.
//
// It may import inbox, idem, pgx, Watermill's core, OpenTelemetry's propagation and trace.
package consume

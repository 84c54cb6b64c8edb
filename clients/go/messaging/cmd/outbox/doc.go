// Command outbox looks after an outbox's table: it makes and sweeps it, lists what is
// parked and has it sent again.
//
// It may import package outbox, pgx and kong.
package main

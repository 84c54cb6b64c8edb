// Package chaos places orders while the shop's processes are killed, waits until all is
// quiet, and counts: nothing twice, nothing lost.
//
// It may import clients/go (idem, idemhttp), clients/go/messaging/outbox, examples/shop
// (broker, events, mailserver, orders, warehouse) and pgx.
package chaos

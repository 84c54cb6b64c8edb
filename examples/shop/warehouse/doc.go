// Package warehouse reserves goods for orders: each message counts once, by a mark in the
// transaction of the reservation.
//
// It may import clients/go/messaging (consume, inbox), examples/shop/events, pgx and
// Watermill's core.
package warehouse

// Package orders takes orders over HTTP. Behind a guard, an order and the event that tells
// of it are written in one transaction, which commits once.
//
// It may import clients/go (idem, idemhttp), clients/go/messaging (fence, outbox),
// examples/shop/events, pgx and Watermill's Publisher and Message.
package orders

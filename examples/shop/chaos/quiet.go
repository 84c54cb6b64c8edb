package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/examples/shop/broker"
	"github.com/idemd/idemd/examples/shop/orders"
)

const (
	// look is the pause between two looks.
	look = 100 * time.Millisecond
	// inARow looks must have seen nothing under way.
	inARow = 5
)

// awaitQuiet waits until all events are sent, and all messages acknowledged.
func awaitQuiet(ctx context.Context, w World) error {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	for quiet := 0; ; {
		underWay := pending(ctx, w)
		if quiet++; underWay != "" {
			quiet = 0
		}
		if quiet == inARow {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not become quiet within %v: %s", quietLimit, underWay)
		case <-time.After(look):
		}
	}
}

// pending says what is under way, as far as it can be told; empty: nothing.
func pending(ctx context.Context, w World) string {
	events, err := outbox.New(orders.Outbox())
	if err != nil {
		return err.Error()
	}
	stats, err := events.Stats(ctx, w.Pool)
	if err != nil {
		return err.Error()
	}
	if stats.Pending > 0 {
		return fmt.Sprintf("%d events are to be sent", stats.Pending)
	}
	standing, err := broker.Look(w.Broker)
	if err != nil {
		return err.Error()
	}
	for consumer, n := range standing.Outstanding {
		if n > 0 {
			return fmt.Sprintf("%d messages of the %s are not acknowledged", n, consumer)
		}
	}
	return ""
}

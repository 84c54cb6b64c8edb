package orders

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/examples/shop/events"
)

// What can be broken here, to see that the count notices it.
const (
	// BrokenFence: each attempt commits.
	BrokenFence = "no-fence"
	// BrokenOutbox: the event is published after the COMMIT.
	BrokenOutbox = "no-outbox"
)

// withoutFence commits whatever other attempts have done.
func (s *service) withoutFence(ctx context.Context, o order) (result *idem.Result, err error) {
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		result, err = s.write(ctx, tx, o)
		return err
	})
	return result, err
}

// withoutOutbox is what a service does that has a broker at hand: commit, then publish.
func (s *service) withoutOutbox(ctx context.Context, grant *idem.Grant, o order) (*idem.Result, error) {
	var event *outbox.Event
	result, err := s.attempts.Run(ctx, s.Pool, grant, func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		result, e, err := insert(ctx, tx, o)
		event = &e
		return result, err
	})
	if err != nil || event == nil {
		return result, err
	}
	return result, s.Publisher.Publish(events.Placed, message.NewMessage(watermill.NewUUID(), event.Payload))
}

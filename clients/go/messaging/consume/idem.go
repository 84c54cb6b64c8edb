package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
)

// DefaultWait is how long a delivery waits for another one of the same message that is being
// handled: less than brokers wait for an acknowledgement (30 s is usual).
const DefaultWait = 10 * time.Second

// Idem makes middleware for handlers whose effect is outside (a mail, a charge): idemd
// grants each message once. The grant is in the handler's context (idem.GrantFrom). The key
// is the consumer with the business identity, or else with the message's; what an error
// of the handler means is as with idem.Do, in the mode of Options.Operation (External where
// none is said: an undeclared error or a panic may have left it done).
//
// Acknowledged is a message that is done, now or before; one that was refused for good, or
// whose key is another message's or can't be one, once it is in Options.DeadLetter; and one
// of which nobody knows, once it is in Options.Unresolved: it is never tried again by itself.
// Both places can get a message twice. All others are delivered again:
// those that are being handled elsewhere, or were certainly not (until idemd's attempts are
// used up: then they are refused for good), and all while the daemon is away.
func Idem(client *idem.Client, o Options) (message.HandlerMiddleware, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	op := &o.Operation
	switch {
	case client == nil:
		return nil, errors.New("consume: Idem needs a client")
	case o.Unresolved == "":
		return nil, errors.New("consume: Unresolved is missing: messages of which nobody knows have no place to go")
	case o.Attempts != 0:
		return nil, errors.New("consume: Attempts is for SQL: here idemd counts")
	case op.Key != "" || op.Fingerprint.Scheme != "" || op.Fingerprint.Digest != nil || !op.FirstAttemptAt.IsZero():
		return nil, errors.New("consume: an Operation's Key, Fingerprint and FirstAttemptAt are each message's own")
	case op.Wait == 0:
		op.Wait = DefaultWait
	}
	c := &idemConsumer{client, o}
	return func(handler message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return nil, c.consume(msg, handler) }
	}, nil
}

type idemConsumer struct {
	client *idem.Client
	Options
}

// consume is nil where the message is to be acknowledged.
func (c *idemConsumer) consume(msg *message.Message, handler message.HandlerFunc) error {
	m, err := c.identify(msg)
	if err != nil {
		return c.bury(msg, err, 1)
	}
	op, err := c.operation(m, msg)
	if err != nil {
		return c.bury(msg, err, 1)
	}
	_, err = c.client.Do(traced(msg), op, func(ctx context.Context, _ *idem.Grant) (*idem.Result, error) {
		return nil, call(ctx, handler, msg)
	})
	// What is within one of these errors may be about another operation: only the outermost
	// is about this one.
	switch e := err.(type) { //nolint:errorlint // see above
	case *idem.FinalError:
		return c.bury(msg, e, int(e.Attempt))
	case *idem.UnresolvedError:
		if c.goesOn(e) {
			return e
		}
		return c.handOver(msg, e)
	case *idem.Error:
		if e.Reason == idem.FingerprintMismatch || e.Reason == idem.KeyInvalid {
			return c.bury(msg, e, 0)
		}
	}
	return err
}

// goesOn: another delivery can bring more. A verdict waits for the settle time; or the
// effect is safe to repeat, and this was not the last attempt.
func (c *idemConsumer) goesOn(e *idem.UnresolvedError) bool {
	return e.RetryAfter > 0 || c.Operation.Mode == idem.Transactional && e.Since.IsZero()
}

// operation is what idemd is asked for. The consumer is in the key, so that of two
// consumers in one namespace each handles the message.
func (c *idemConsumer) operation(m inbox.Message, msg *message.Message) (idem.Operation, error) {
	op := c.Operation
	if m.Business != "" {
		op.Key, op.Fingerprint = fmt.Sprintf("%s/business/%s", m.Consumer, m.Business), idem.SHA256("business-v1", []byte(m.Business))
	} else {
		op.Key, op.Fingerprint = fmt.Sprintf("%s/message/%s", m.Consumer, m.ID), idem.SHA256("message-v1", msg.Payload)
	}
	if c.Fingerprint == nil {
		return op, nil
	}
	err := safely(func() error {
		op.Fingerprint = c.Fingerprint(msg)
		return nil
	})
	return op, err
}

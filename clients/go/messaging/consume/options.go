package consume

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
)

// DefaultAttempts is how often a message may fail where nothing else is said.
const DefaultAttempts = 5

// Options say how messages are consumed.
type Options struct {
	// Consumer names who handles the messages; several processes that share the work have
	// one name. Each consumer handles each message once. Required, 1-128 bytes of printable
	// ASCII without spaces.
	Consumer string
	// ID is a message's identity, the same on every delivery of it. Default: its UUID, or what
	// MessageKey says where it is a letter that was sent again. It must depend on nothing but the message; one for which it returns an error is a dead
	// letter at once.
	ID func(*message.Message) (string, error)
	// Business is what a message is about (a payment, an order), where two messages about
	// it must count once; "" = the message alone counts. Default: always so. As ID, it
	// depends on nothing but the message.
	Business func(*message.Message) (string, error)

	// Publisher takes the messages that are not handled, and must return only after the
	// broker has them for certain: what it has taken is acknowledged. Required.
	Publisher message.Publisher
	// DeadLetter is the topic of messages that can't be handled. Required.
	DeadLetter string
	// Logger is told of each message that is put aside. Default: nobody.
	Logger *slog.Logger

	// Attempts is how often handling a message may fail before it is a dead letter. Zero =
	// DefaultAttempts. Only for SQL: with Idem, idemd counts.
	Attempts int

	// Unresolved is the topic of messages of which nobody knows whether they were handled.
	// Required for Idem, and only for it.
	Unresolved string
	// Operation is what idemd is asked for, but for Key, Fingerprint and FirstAttemptAt.
	// Where Wait is zero it is DefaultWait. Choose Retention longer than the broker's longest
	// redelivery, by hand and from dead letters too: after it a message is handled again.
	// Only for Idem.
	Operation idem.Operation
	// Fingerprint is what a message means. Default: where it has a business identity that
	// identity (two messages about one payment have two payloads), else its payload. Only
	// for Idem.
	Fingerprint func(*message.Message) idem.Fingerprint
}

// check completes the options that both middlewares have.
func (o *Options) check() error {
	switch {
	case !printable(o.Consumer) || len(o.Consumer) > inbox.MaxConsumerBytes:
		return fmt.Errorf("consume: Consumer %q: 1 to %d bytes of printable ASCII without spaces", o.Consumer, inbox.MaxConsumerBytes)
	case o.Publisher == nil:
		return errors.New("consume: Publisher is missing: dead letters have no way out")
	case o.DeadLetter == "":
		return errors.New("consume: DeadLetter is missing: messages that can't be handled have no place to go")
	}
	if o.ID == nil {
		o.ID = func(msg *message.Message) (string, error) { return messageID(msg), nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Business == nil {
		o.Business = func(*message.Message) (string, error) { return "", nil }
	}
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// identify says what is to count once. What it refuses it will refuse on every delivery.
func (o *Options) identify(msg *message.Message) (inbox.Message, error) {
	m := inbox.Message{Consumer: o.Consumer}
	err := safely(func() (err error) {
		if m.ID, err = o.ID(msg); err == nil {
			m.Business, err = o.Business(msg)
		}
		return err
	})
	if err != nil {
		return m, err
	}
	return m, m.Check()
}

package mailer

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// What can be broken here, to see that the count notices it.
const (
	// BrokenAcknowledge: messages are acknowledged before their mails are sent.
	BrokenAcknowledge = "ack-first"
	// BrokenGuard: mails are sent without idemd.
	BrokenGuard = "no-guard"
)

func acknowledgeFirst(handler message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msg.SetContext(context.WithoutCancel(msg.Context())) // which ends with the acknowledgement
		msg.Ack()
		return handler(msg)
	}
}

func (m *Mailer) unguarded(msg *message.Message) error { return m.deliver(msg, msg.UUID) }

package consume

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
)

// Metadata of dead letters and of unresolved messages, beside their own.
const (
	// ReasonKey: why it was not handled, one line of at most 512 bytes.
	ReasonKey = "idem_reason"
	// ConsumerKey: the consumer.
	ConsumerKey = "idem_consumer"
	// TopicKey: the topic that it came from, where the router has told it.
	TopicKey = "idem_topic"
	// MessageKey: the message's own UUID. A letter has another one, because brokers that know
	// copies by it would take the letter for one, and drop it. Where a letter is sent again,
	// Options.ID finds the message's here.
	MessageKey = "idem_message_id"
	// AttemptsKey: how often it has been tried.
	AttemptsKey = "idem_attempts"
	// TenantKey, NamespaceKey, KeyKey and VersionKey are what `idemd resolve` asks for; of
	// unresolved messages only.
	TenantKey    = "idem_tenant"
	NamespaceKey = "idem_namespace"
	KeyKey       = "idem_key"
	VersionKey   = "idem_version"
)

const maxReasonBytes = 512

// bury publishes a message as a dead letter. It may come there twice: where the process ends
// before the message is acknowledged.
func (o *Options) bury(msg *message.Message, why error, attempts int) error {
	return o.pass(o.DeadLetter, o.annotated(msg, why, attempts))
}

// handOver publishes a message of which nobody knows whether it was handled.
func (o *Options) handOver(msg *message.Message, why *idem.UnresolvedError) error {
	unresolved := o.annotated(msg, why, int(why.Attempt))
	unresolved.Metadata[TenantKey], unresolved.Metadata[NamespaceKey] = why.Tenant, why.Namespace
	unresolved.Metadata[KeyKey], unresolved.Metadata[VersionKey] = why.Key, strconv.FormatInt(why.Version, 10)
	return o.pass(o.Unresolved, unresolved)
}

// annotated is a letter: the message under a UUID of its own, and why it is none that is handled.
func (o *Options) annotated(msg *message.Message, why error, attempts int) *message.Message {
	letter := letterOf(msg)
	letter.Metadata[ReasonKey] = oneLine(summary(why))
	letter.Metadata[ConsumerKey] = o.Consumer
	letter.Metadata[TopicKey] = message.SubscribeTopicFromCtx(msg.Context())
	letter.Metadata[AttemptsKey] = strconv.Itoa(attempts)
	return letter
}

func letterOf(msg *message.Message) *message.Message {
	letter := message.NewMessage(idem.NewKey(), msg.Payload)
	letter.SetContext(msg.Context())
	for name, value := range msg.Metadata {
		letter.Metadata[name] = value
	}
	letter.Metadata[MessageKey] = messageID(msg)
	return letter
}

// messageID is a message's UUID; of a letter that is sent again, that of the message.
func messageID(msg *message.Message) string {
	if id := msg.Metadata[MessageKey]; id != "" {
		return id
	}
	return msg.UUID
}

// pass publishes a letter. What is said in it may be what makes it too large for the broker,
// who has taken the message: then it goes without.
func (o *Options) pass(topic string, letter *message.Message) error {
	err := o.publish(topic, letter)
	if err != nil {
		bare := letterOf(letter)
		for _, name := range []string{ReasonKey, ConsumerKey, TopicKey, AttemptsKey} {
			delete(bare.Metadata, name)
		}
		err = o.publish(topic, bare)
	}
	if err != nil {
		return fmt.Errorf("consume: not acknowledged, for it can't be published to %s: %w", topic, err)
	}
	o.Logger.LogAttrs(letter.Context(), slog.LevelWarn, "consume: a message was put aside", slog.String("consumer", o.Consumer),
		slog.String("message", letter.Metadata[MessageKey]), slog.String("to", topic), slog.String("reason", letter.Metadata[ReasonKey]))
	return nil
}

// publish is the Publisher's; one that panics has failed.
func (o *Options) publish(topic string, letter *message.Message) error {
	return safely(func() error { return o.Publisher.Publish(topic, letter) })
}

// oneLine makes a text fit for a header.
func oneLine(text string) string {
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	return strings.ToValidUTF8(plain[:min(len(plain), maxReasonBytes)], "")
}

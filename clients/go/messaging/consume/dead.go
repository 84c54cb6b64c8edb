package consume

import (
	"fmt"
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

// bury publishes a message as a dead letter. It may come there twice, under one UUID: where
// the process ends before the message is acknowledged.
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

func (o *Options) annotated(msg *message.Message, why error, attempts int) *message.Message {
	letter := msg.CopyWithContext()
	letter.Metadata[ReasonKey] = oneLine(summary(why))
	letter.Metadata[ConsumerKey] = o.Consumer
	letter.Metadata[TopicKey] = message.SubscribeTopicFromCtx(msg.Context())
	letter.Metadata[AttemptsKey] = strconv.Itoa(attempts)
	return letter
}

func (o *Options) pass(topic string, msg *message.Message) error {
	if err := o.Publisher.Publish(topic, msg); err != nil {
		return fmt.Errorf("consume: not acknowledged, for it can't be published to %s: %w", topic, err)
	}
	return nil
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

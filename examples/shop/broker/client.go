package broker

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

const (
	// replyLimit is how long an answer of the broker is waited for.
	replyLimit = time.Second
	// workers is how many messages a subscriber hands out at once.
	workers = 16
	// handleLimit is how long a message may take: longer than any handler waits.
	handleLimit = 15 * time.Second
	// resend is how late a message is delivered again that was refused.
	resend = 200 * time.Millisecond
	// closeLimit is how long messages under way may take when a subscriber closes.
	closeLimit = 3 * time.Second
)

// options connect, and again whenever the broker has died, for ever.
func options() []nats.Option {
	return []nats.Option{
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(20*time.Millisecond, 0),
	}
}

// NewPublisher makes a publisher: Publish returns nil once the broker has the message on
// disk.
func NewPublisher(url string, log watermill.LoggerAdapter) (message.Publisher, error) {
	return wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: url, NatsOptions: options(), JetStream: wmnats.JetStreamConfig{ConnectOptions: []nats.JSOpt{nats.MaxWait(replyLimit)}},
	}, log)
}

// NewSubscriber makes a subscriber of one of the [Consumers].
func NewSubscriber(url, consumer string, log watermill.LoggerAdapter) (message.Subscriber, error) {
	return wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: url, NatsOptions: options(), QueueGroupPrefix: consumer, SubscribersCount: workers,
		CloseTimeout: closeLimit, AckWaitTimeout: handleLimit, NakDelay: wmnats.NewStaticDelay(resend),
		JetStream: wmnats.JetStreamConfig{
			DurablePrefix:  consumer,
			ConnectOptions: []nats.JSOpt{nats.MaxWait(replyLimit)},
			// Without ManualAck the NATS client acknowledges by itself what the subscriber has
			// given up. Without Bind a subscriber that comes before the consumer is there makes
			// one of its own, with other times, which goes when it closes.
			SubscribeOptions: []nats.SubOpt{nats.ManualAck(), nats.Bind(stream, consumer)},
		},
	}, log)
}

// Away says whether an error of Publish is the broker's and not the message's.
func Away(err error) bool {
	for _, is := range []error{nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoStreamResponse, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// TooLarge says whether the broker will never take the message.
func TooLarge(err error) bool { return errors.Is(err, nats.ErrMaxPayload) }

// Standing is how the stream and its consumers stand.
type Standing struct {
	// Outstanding are the deliveries that were not acknowledged yet, by consumer.
	Outstanding map[string]int
	// Messages are those that are kept, by topic.
	Messages map[string]uint64
}

// Look asks the broker how it stands.
func Look(url string) (Standing, error) {
	conn, err := nats.Connect(url, nats.Timeout(replyLimit))
	if err != nil {
		return Standing{}, err
	}
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(replyLimit))
	if err != nil {
		return Standing{}, err
	}
	info, err := js.StreamInfo(stream, &nats.StreamInfoRequest{SubjectsFilter: ">"})
	if err != nil {
		return Standing{}, err
	}
	s := Standing{Outstanding: map[string]int{}, Messages: info.State.Subjects}
	for _, name := range Consumers() {
		consumer, err := js.ConsumerInfo(stream, name)
		if err != nil {
			return Standing{}, err
		}
		s.Outstanding[name] = int(consumer.NumPending) + consumer.NumAckPending
	}
	return s, nil
}

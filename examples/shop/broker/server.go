package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/idemd/idemd/examples/shop/events"
)

const (
	stream     = "SHOP"
	startLimit = 20 * time.Second
	// ackWait is how late a message is delivered again whose consumer has died. A mailer may
	// take longer, where it waits for the end of a dead one's lease: then a copy comes, which
	// does no harm but work.
	ackWait = 2 * time.Second
	// mostOutstanding bounds what a consumer that dies takes along for ackWait.
	mostOutstanding = 256
)

// Consumers are the groups that get every order, each on its own.
func Consumers() []string { return []string{"warehouse", "mailer"} }

// Serve runs a server on a loopback port, with its files in dir, until ctx ends.
func Serve(ctx context.Context, port int, dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
		SyncAlways: true, // what it acknowledges is on disk: its default is every two minutes
	})
	if err != nil {
		return err
	}
	go s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(startLimit) {
		return fmt.Errorf("the broker does not listen on port %d", port)
	}
	if err := provide(s); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// provide makes the stream and the consumers, once: those that a subscriber makes for
// itself are deleted when it closes.
func provide(s *server.Server) error {
	conn, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		return err
	}
	_, err = js.StreamInfo(stream)
	if errors.Is(err, nats.ErrStreamNotFound) {
		_, err = js.AddStream(&nats.StreamConfig{
			Name: stream, Subjects: []string{events.Placed, events.OrdersDead, events.MailsDead, events.MailsUnresolved}, Storage: nats.FileStorage,
		})
	}
	if err != nil {
		return fmt.Errorf("the stream: %w", err)
	}
	for _, name := range Consumers() {
		_, err := js.ConsumerInfo(stream, name)
		if errors.Is(err, nats.ErrConsumerNotFound) {
			_, err = js.AddConsumer(stream, &nats.ConsumerConfig{
				Durable: name, FilterSubject: events.Placed, DeliverSubject: "deliver." + name, DeliverGroup: name,
				DeliverPolicy: nats.DeliverAllPolicy, AckPolicy: nats.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: mostOutstanding,
			})
		}
		if err != nil {
			return fmt.Errorf("the consumer %s: %w", name, err)
		}
	}
	return nil
}

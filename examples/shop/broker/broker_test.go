package broker

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/idemd/idemd/examples/shop/events"
)

func start(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(startLimit) {
		t.Fatal("the broker does not start")
	}
	return s
}

func subscribe(t *testing.T, url string) (<-chan *message.Message, error) {
	t.Helper()
	subscriber, err := NewSubscriber(url, "mailer", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = subscriber.Close() })
	return subscriber.Subscribe(t.Context(), events.Placed)
}

func TestASubscriberMakesNoConsumerOfItsOwn(t *testing.T) {
	s := start(t)
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: stream, Subjects: []string{events.Placed}}); err != nil {
		t.Fatal(err)
	}
	if _, err := subscribe(t, s.ClientURL()); err == nil {
		t.Error("it subscribes to a consumer that is not there")
	}
	if _, err := js.ConsumerInfo(stream, "mailer"); err == nil {
		t.Error("there is a consumer that nobody has provided")
	}
}

func TestWhatIsProvidedIsProvidedOnceAndStays(t *testing.T) {
	s := start(t)
	for range 2 { // the second time is after a restart
		if err := provide(s); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := subscribe(t, s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	publisher, err := NewPublisher(s.ClientURL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = publisher.Close() }()
	if err := publisher.Publish(events.Placed, message.NewMessage("m1", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	got := <-messages
	standing, err := Look(s.ClientURL())
	if err != nil || got.UUID != "m1" || standing.Outstanding["mailer"] != 1 || standing.Outstanding["warehouse"] != 1 || standing.Messages[events.Placed] != 1 {
		t.Errorf("%v stands at %+v, %v", got.UUID, standing, err)
	}
	got.Ack()
}

package messaging

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/e2e/harness"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

const unresolved = "unresolved"

// mails counts what was sent, by message.
type mails struct {
	mu   sync.Mutex
	sent map[string]int
}

// send sends a mail; then comes what the message says.
func (m *mails) send(msg *message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent == nil {
		m.sent = map[string]int{}
	}
	switch msg.Metadata["then"] {
	case "refused":
		return idem.NotExecuted(errors.New("mailbox full"))
	case "no answer":
		m.sent[msg.UUID]++
		return errors.New("no answer from the mail server")
	}
	m.sent[msg.UUID]++
	return nil
}

func (m *mails) distinct() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sent)
}

// mustBeOnce demands that each was sent once.
func (m *mails) mustBeOnce(t *testing.T, want int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sent) != want {
		t.Errorf("%d mails were sent, want %d", len(m.sent), want)
	}
	for id, n := range m.sent {
		if n != 1 {
			t.Errorf("the mail of %s was sent %d times", id, n)
		}
	}
}

func idemMiddleware(t *testing.T, addr string, p message.Publisher, mode idem.Mode) (*idem.Client, message.HandlerMiddleware) {
	t.Helper()
	client := idem.New(harness.Dial(t, addr, idem.DialOptions()...), idem.Options{Tenant: "shop", Patience: time.Second})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = client.Close(ctx)
	})
	middleware, err := consume.Idem(client, consume.Options{
		Consumer: "mailer", Publisher: p, DeadLetter: dead, Unresolved: unresolved, Operation: idem.Operation{Mode: mode},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client, middleware
}

func TestThroughIdemdMailsAreSentOnceThoughTheBrokerIsUnrulyAndTheDaemonIsKilled(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		const n = 40
		d := house.Serve(t, s)
		b := onNATS(startNATS(t))
		publisher := b.publisher(t)
		var sent mails
		var ended tally
		_, middleware := idemMiddleware(t, d.GRPC, publisher, idem.External)
		for range 2 {
			route(t, b.subscriber(t, "mailer"), orders, sent.send, ended.middleware, middleware)
		}
		chaos := newUnruly(t, publisher)
		for i := range n {
			if err := chaos.Publish(orders, message.NewMessage(fmt.Sprint("m", i), message.Payload(fmt.Sprint("order-", i)))); err != nil {
				t.Fatal(err)
			}
		}
		first, err := chaos.flush(&chaos.now)
		if err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "some mails", func() bool { return sent.distinct() >= n/4 })
		d.Kill()
		late, err := chaos.flush(&chaos.late)
		if err != nil {
			t.Fatal(err)
		}
		harness.Restart(t, d)
		harness.Until(t, "all acknowledgements", func() bool { return ended.acknowledged.Load() >= int64(first+late) && sent.distinct() == n })
		sent.mustBeOnce(t, n)
	})
}

func TestAMailThatIsNeverSentIsADeadLetterOnceIdemdsAttemptsAreUsedUp(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		b := onNATS(startNATS(t))
		publisher := b.publisher(t)
		var sent mails
		_, middleware := idemMiddleware(t, house.Serve(t, s).GRPC, publisher, idem.External)
		route(t, b.subscriber(t, "mailer"), orders, sent.send, middleware)
		letters := collect(t, b.subscriber(t, "clerk"), dead)
		for i := range 12 {
			msg := message.NewMessage(fmt.Sprint("m", i), message.Payload("an order"))
			if i < 2 {
				msg.Metadata["then"] = "refused"
			}
			if err := publisher.Publish(orders, msg); err != nil {
				t.Fatal(err)
			}
		}
		// An id that can be no key is one at once.
		if err := publisher.Publish(orders, message.NewMessage("m 12", nil)); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the good ones", func() bool { return sent.distinct() == 10 })
		harness.Until(t, "the dead letters", func() bool { return len(letters.ids()) == 3 })
		for _, letter := range letters.all() {
			if letter.Metadata[consume.MessageKey] == "m 12" {
				if !strings.Contains(letter.Metadata[consume.ReasonKey], "KEY_INVALID") {
					t.Errorf("a letter says %v", letter.Metadata)
				}
				continue
			}
			if letter.Metadata[consume.AttemptsKey] != "20" || letter.Metadata["then"] != "refused" {
				t.Errorf("a letter says %v", letter.Metadata)
			}
		}
		sent.mustBeOnce(t, 10)
	})
}

func TestAMailOfWhichNobodyKnowsIsPutAsideWithWhatItTakesToResolveIt(t *testing.T) {
	house.EachStore(t, func(t *testing.T, s harness.Store) {
		b := onNATS(startNATS(t))
		publisher := b.publisher(t)
		var sent mails
		var ended tally
		d := house.Serve(t, s)
		client, middleware := idemMiddleware(t, d.GRPC, publisher, idem.External)
		route(t, b.subscriber(t, "mailer"), orders, sent.send, ended.middleware, middleware)
		aside := collect(t, b.subscriber(t, "clerk"), unresolved)
		msg := message.NewMessage("m1", message.Payload("an order"))
		msg.Metadata["then"] = "no answer"
		if err := publisher.Publish(orders, msg.Copy()); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "it to be put aside", func() bool { return len(aside.all()) == 1 && ended.acknowledged.Load() == 1 })
		// The next one hears of it, too, also from whoever thinks that it is safe to repeat.
		_, middleware = idemMiddleware(t, d.GRPC, publisher, idem.Transactional)
		route(t, b.subscriber(t, "mailer"), "again", sent.send, ended.middleware, middleware)
		if err := publisher.Publish("again", msg.Copy()); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the next one to be put aside", func() bool { return len(aside.all()) == 2 && ended.acknowledged.Load() == 2 })
		sent.mustBeOnce(t, 1)
		m := aside.all()[0].Metadata
		version, err := strconv.ParseInt(m[consume.VersionKey], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resolve(harness.Bounded(t), &idemdv1.ResolveRequest{
			Tenant: m[consume.TenantKey], Namespace: m[consume.NamespaceKey], Key: m[consume.KeyKey], ExpectedVersion: version,
			Verdict: idemdv1.Verdict_VERDICT_SUCCEEDED, Result: &idem.Result{}, Reason: "it is in the outgoing folder",
		}); err != nil {
			t.Fatal(err)
		}
		if err := publisher.Publish(orders, msg.Copy()); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the acknowledgement", func() bool { return ended.acknowledged.Load() == 3 })
		sent.mustBeOnce(t, 1)
		if len(aside.all()) != 2 {
			t.Errorf("%d are put aside", len(aside.all()))
		}
	})
}

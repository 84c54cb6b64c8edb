package mailer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/examples/shop/events"
	"github.com/idemd/idemd/examples/shop/mailserver"
)

const (
	// lease is how long a mailer may be silent: short, so that a killed one is noticed
	// within seconds. 30 s is a better one.
	lease = 2 * time.Second
	// settle is how long after the lease a mail may still be on its way: until then "there
	// is no such mail" counts for nothing.
	settle = 2 * time.Second
	// wait is how long a delivery is held while another one of its message is under way,
	// and while the settle time lasts.
	wait = 2 * time.Second
	// patience is how long the mail server is waited for.
	patience = time.Second
	// label names the mail among what an order's message may lead to.
	label = "mail"
)

// Mailer sends mails.
type Mailer struct {
	Server *mailserver.Client
	Log    *slog.Logger
}

// Route adds the mailer to a router. broken is one of the Broken constants, or empty.
func (m *Mailer) Route(router *message.Router, client *idem.Client, subscriber message.Subscriber, publisher message.Publisher, broken string) error {
	if broken == BrokenGuard {
		router.AddConsumerHandler("mail", events.Placed, subscriber, m.unguarded)
		return nil
	}
	once, err := consume.Idem(client, consume.Options{
		Consumer: "mailer", Publisher: publisher, DeadLetter: events.MailsDead, Unresolved: events.MailsUnresolved,
		Operation: idem.Operation{Lease: lease, Settle: settle, Wait: wait, Reconcile: m.ask},
	})
	if err != nil {
		return err
	}
	handler := router.AddConsumerHandler("mail", events.Placed, subscriber, m.send)
	if broken == BrokenAcknowledge {
		handler.AddMiddleware(acknowledgeFirst)
	}
	handler.AddMiddleware(once)
	return nil
}

// send sends the mail of an order, under a key that is the same on every attempt.
func (m *Mailer) send(msg *message.Message) error {
	grant, guarded := idem.GrantFrom(msg.Context())
	if !guarded {
		return errors.New("mails are sent behind a guard only")
	}
	return m.deliver(msg, grant.DeriveKey(label))
}

func (m *Mailer) deliver(msg *message.Message, key string) error {
	order, err := events.Read(msg.Payload)
	if err != nil {
		return idem.Final(err)
	}
	ctx, cancel := context.WithTimeout(msg.Context(), patience)
	defer cancel()
	err = m.Server.Send(ctx, mailserver.Mail{Key: key, To: order.MailTo, Order: order.Number})
	if errors.Is(err, mailserver.ErrRefused) {
		return idem.Final(err)
	}
	return err // in External that is: it may have been sent
}

// ask finds out what became of a mail whose mailer has died, or has heard nothing.
func (m *Mailer) ask(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	mails, err := m.Server.Find(ctx, u.DeriveKey(label))
	if err != nil {
		return idem.Verdict{}, err
	}
	m.Log.Info("the mail server was asked", "key", u.Key, "attempt", u.Attempt, "mails", len(mails))
	if len(mails) == 0 {
		return idem.WasNotExecuted(), nil
	}
	verdict := idem.WasExecuted(nil)
	verdict.Evidence = fmt.Sprintf("the mail server has %d with the key", len(mails))
	return verdict, nil
}

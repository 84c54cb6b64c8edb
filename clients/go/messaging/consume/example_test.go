package consume_test

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/consume"
	"github.com/idemd/idemd/clients/go/messaging/inbox"
)

// A warehouse: one reservation of goods for each order, in the database of its inbox.
func ExampleSQL() {
	var pool *pgxpool.Pool            // pgxpool.New(…)
	var subscriber message.Subscriber // of the broker
	var publisher message.Publisher   // of the broker

	marks, err := inbox.New("warehouse", "")
	if err != nil {
		panic(err)
	}
	once, err := consume.SQL(pool, marks, consume.Options{Consumer: "warehouse", Publisher: publisher, DeadLetter: "orders.dead"})
	if err != nil {
		return // the publisher is missing, here
	}
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(once)
	router.AddConsumerHandler("reserve", "orders", subscriber, func(msg *message.Message) error {
		tx, _ := consume.Tx(msg.Context())
		_, err := tx.Exec(msg.Context(), "UPDATE stock SET free = free - 1 WHERE article = $1", string(msg.Payload))
		return err
	})
}

// A mailer: one mail for each order, by way of a server outside.
func ExampleIdem() {
	var client *idem.Client           // idem.New(…)
	var subscriber message.Subscriber // of the broker
	var publisher message.Publisher   // of the broker
	var send func(msg *message.Message, key string) error

	once, err := consume.Idem(client, consume.Options{
		Consumer: "mailer", Publisher: publisher, DeadLetter: "mails.dead", Unresolved: "mails.unresolved",
		Operation: idem.Operation{Namespace: "mails"},
	})
	if err != nil {
		return // the client is missing, here
	}
	router := message.NewDefaultRouter(nil)
	router.AddMiddleware(once)
	router.AddConsumerHandler("mail", "orders", subscriber, func(msg *message.Message) error {
		g, _ := idem.GrantFrom(msg.Context())
		return send(msg, g.DeriveKey("send")) // an error: it may have been sent
	})
}

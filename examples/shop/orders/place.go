package orders

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/examples/shop/events"
)

// Placed is how an order is answered.
type Placed struct {
	Number int64 `json:"number"`
}

// once writes the order and its event in a transaction of which one attempt's commits. All
// others, now or later, are given that one's result.
func (s *service) once(ctx context.Context, grant *idem.Grant, o order) (*idem.Result, error) {
	switch s.Broken {
	case BrokenFence:
		return s.withoutFence(ctx, o)
	case BrokenOutbox:
		return s.withoutOutbox(ctx, grant, o)
	}
	return s.attempts.Run(ctx, s.Pool, grant, func(ctx context.Context, tx pgx.Tx) (*idem.Result, error) {
		return s.write(ctx, tx, o)
	})
}

func (s *service) write(ctx context.Context, tx pgx.Tx, o order) (*idem.Result, error) {
	result, event, err := insert(ctx, tx, o)
	if err != nil {
		return nil, err
	}
	return result, s.events.Add(ctx, tx, event)
}

// insert writes the order, and makes the event that is to tell of it.
func insert(ctx context.Context, tx pgx.Tx, o order) (*idem.Result, outbox.Event, error) {
	const statement = "INSERT INTO orders.orders (reference, article, quantity, mail_to) VALUES ($1, $2, $3, $4) RETURNING number"
	var number int64
	if err := tx.QueryRow(ctx, statement, o.Reference, o.Article, o.Quantity, o.MailTo).Scan(&number); err != nil {
		return nil, outbox.Event{}, err
	}
	payload, err := json.Marshal(events.OrderPlaced{Number: number, Article: o.Article, Quantity: o.Quantity, MailTo: o.MailTo})
	if err != nil {
		return nil, outbox.Event{}, err
	}
	body, err := json.Marshal(Placed{number})
	return &idem.Result{Status: http.StatusCreated, ContentType: "application/json", Body: append(body, '\n')},
		outbox.Event{AggregateType: "order", AggregateID: strconv.FormatInt(number, 10), Type: "OrderPlaced", Payload: payload}, err
}

package events

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Topics, which are subjects of the broker's one stream.
const (
	// Placed has an [OrderPlaced] for each order.
	Placed = "orders.placed"
	// OrdersDead has what the warehouse can't handle.
	OrdersDead = "orders.dead"
	// MailsDead has what the mailer can't handle.
	MailsDead = "mails.dead"
	// MailsUnresolved has orders of which nobody knows whether their mail was sent.
	MailsUnresolved = "mails.unresolved"
)

// OrderPlaced says that there is an order.
type OrderPlaced struct {
	Number   int64  `json:"number"`
	Article  string `json:"article"`
	Quantity int64  `json:"quantity"`
	MailTo   string `json:"mail_to"`
}

// Read reads an event's payload.
func Read(payload []byte) (e OrderPlaced, err error) {
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, fmt.Errorf("the event is no OrderPlaced: %w", err)
	}
	if e.Number < 1 || e.Quantity < 1 || e.Article == "" {
		return e, errors.New("the event lacks the order's number, article or quantity")
	}
	return e, nil
}

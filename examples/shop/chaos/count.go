package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idemd/idemd/clients/go/messaging/outbox"
	"github.com/idemd/idemd/examples/shop/broker"
	"github.com/idemd/idemd/examples/shop/events"
	"github.com/idemd/idemd/examples/shop/mailserver"
	"github.com/idemd/idemd/examples/shop/orders"
	"github.com/idemd/idemd/examples/shop/warehouse"
)

// tally says how often there is something, by what it is for.
type tally struct {
	name          string
	wanted, found int
	twice, lost   []string
	// stray are for nothing that is wanted.
	stray []string
}

// compare counts what there is of each that is wanted.
func compare(name string, wanted, found []string) tally {
	t, times, isWanted := tally{name: name, wanted: len(wanted), found: len(found)}, map[string]int{}, map[string]bool{}
	for _, what := range wanted {
		isWanted[what] = true
	}
	for _, what := range found {
		if times[what]++; !isWanted[what] {
			t.stray = append(t.stray, what)
		} else if times[what] == 2 {
			t.twice = append(t.twice, what)
		}
	}
	for what := range isWanted {
		if times[what] == 0 {
			t.lost = append(t.lost, what)
		}
	}
	return t
}

func (t tally) right() bool {
	return t.wanted == t.found && len(t.twice)+len(t.lost)+len(t.stray) == 0
}

// count is all that was counted.
type count struct {
	tallies []tally
	// ordered, and taken out of the stock, in pieces.
	ordered, taken int64
	// parked events, and messages in the places for what could not be handled.
	parked, dead int
}

// countAll counts orders by reference and number, and what became of each number.
func countAll(ctx context.Context, w World, p placements) (c count, err error) {
	var wanted, numbers []string
	for _, o := range p.orders {
		wanted = append(wanted, o.Reference)
		numbers = append(numbers, fmt.Sprintf("%d for %s", o.number, o.Reference))
		c.ordered += o.Quantity
	}
	placed, err := texts(ctx, w, "SELECT reference FROM orders.orders")
	if err != nil {
		return c, err
	}
	answered, err := texts(ctx, w, "SELECT number || ' for ' || reference FROM orders.orders")
	if err != nil {
		return c, err
	}
	inDatabase, err := texts(ctx, w, "SELECT number::text FROM orders.orders")
	if err != nil {
		return c, err
	}
	reserved, err := texts(ctx, w, "SELECT order_number::text FROM warehouse.reservations")
	if err != nil {
		return c, err
	}
	mails, err := mailserver.NewClient(w.Mails).Find(ctx, "")
	if err != nil {
		return c, err
	}
	var mailed []string
	for _, mail := range mails {
		mailed = append(mailed, fmt.Sprint(mail.Order))
	}
	c.tallies = []tally{
		compare("orders", wanted, placed), compare("answers", numbers, answered),
		compare("reservations", inDatabase, reserved), compare("mails", inDatabase, mailed),
	}
	if err := w.Pool.QueryRow(ctx, "SELECT sum($1 - free) FROM warehouse.stock", int64(warehouse.InStock)).Scan(&c.taken); err != nil {
		return c, err
	}
	return c, c.countUnhandled(ctx, w)
}

func (c *count) countUnhandled(ctx context.Context, w World) error {
	written, err := outbox.New(orders.Outbox())
	if err != nil {
		return err
	}
	stats, err := written.Stats(ctx, w.Pool)
	if err != nil {
		return err
	}
	standing, err := broker.Look(w.Broker)
	if err != nil {
		return err
	}
	c.parked = int(stats.Parked)
	for _, topic := range []string{events.OrdersDead, events.MailsDead, events.MailsUnresolved} {
		c.dead += int(standing.Messages[topic])
	}
	return nil
}

func texts(ctx context.Context, w World, query string) ([]string, error) {
	rows, err := w.Pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// write writes the table.
func (c count) write(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%-14s %7s %7s %7s %7s %7s\n", "", "wanted", "found", "twice", "lost", "stray")
	for _, t := range c.tallies {
		_, _ = fmt.Fprintf(out, "%-14s %7d %7d %7d %7d %7d\n", t.name, t.wanted, t.found, len(t.twice), len(t.lost), len(t.stray))
	}
	_, _ = fmt.Fprintf(out, "%-14s %7d %7d\n", "goods", c.ordered, c.taken)
	_, _ = fmt.Fprintf(out, "events parked: %d; dead letters and unresolved messages: %d\n", c.parked, c.dead)
}

// verdict is nil where all is right, and else the evidence.
func (c count) verdict() error {
	var wrong []error
	for _, t := range c.tallies {
		if !t.right() {
			wrong = append(wrong, fmt.Errorf("%s: twice %s, lost %s, stray %s", t.name, few(t.twice), few(t.lost), few(t.stray)))
		}
	}
	if c.ordered != c.taken {
		wrong = append(wrong, fmt.Errorf("goods: %d were ordered, %d are gone from the stock", c.ordered, c.taken))
	}
	if c.parked+c.dead > 0 {
		wrong = append(wrong, fmt.Errorf("%d events are parked, %d messages were not handled", c.parked, c.dead))
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("the count is wrong:\n%w", errors.Join(wrong...))
}

// few are the first ones.
func few(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

package bank

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
)

func client(t *testing.T) (*Bank, *Client) {
	t.Helper()
	b := New(slog.New(slog.DiscardHandler))
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	return b, NewClient(server.URL)
}

func TestOneReferenceIsBookedOnce(t *testing.T) {
	b, c := client(t)
	bookings := make([]string, 20)
	var all sync.WaitGroup
	for i := range bookings {
		all.Go(func() {
			booking, err := c.Book(context.Background(), Request{Reference: "r", Order: "1", Cents: 5, Card: CardTwice})
			if err != nil {
				t.Error(err)
				return
			}
			bookings[i] = booking.Booking
		})
	}
	all.Wait()
	for _, booking := range bookings {
		if booking != bookings[0] {
			t.Errorf("answers have the bookings %v", bookings)
			break
		}
	}
	if len(b.statement) != 1 {
		t.Errorf("there are %d bookings", len(b.statement))
	}
}

func TestWithoutAReferenceEveryRequestIsBooked(t *testing.T) {
	b, c := client(t)
	if _, err := c.Book(context.Background(), Request{Order: "1", Cents: 5, Card: CardTwice}); err != nil {
		t.Fatal(err)
	}
	if len(b.statement) != 2 {
		t.Errorf("there are %d bookings of a request that arrived twice", len(b.statement))
	}
}

func TestWhatIsRefusedIsNotBooked(t *testing.T) {
	_, c := client(t)
	ctx := context.Background()
	for card, want := range map[string]error{CardDeclined: ErrDeclined, CardBusy: ErrBusy} {
		if _, err := c.Book(ctx, Request{Reference: card, Order: "1", Cents: 5, Card: card}); !errors.Is(err, want) {
			t.Errorf("%s: %v", card, err)
		}
		if booking, err := c.Find(ctx, card); booking != nil || err != nil {
			t.Errorf("%s: %v, %v is in the statement", card, booking, err)
		}
	}
	if _, err := c.Book(ctx, Request{Reference: CardBusy, Order: "1", Cents: 5, Card: CardBusy}); err != nil {
		t.Errorf("busy, the second time: %v", err)
	}
}

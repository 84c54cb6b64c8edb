package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/examples/shop/orders"
	"github.com/idemd/idemd/examples/shop/warehouse"
)

const (
	// answerLimit is how long one answer is waited for: longer than orders holds a retry.
	answerLimit = 15 * time.Second
	// again is the pause after an answer that leaves it open, where none is asked for.
	again = 50 * time.Millisecond
	// tries is how often the transport sends a request until it says so.
	tries = 10
	// mostOrdered bounds the quantity of an order.
	mostOrdered = 5
)

// order is one that is wanted.
type order struct {
	Reference string `json:"reference"`
	Article   string `json:"article"`
	Quantity  int64  `json:"quantity"`
	MailTo    string `json:"mail_to"`

	// number is what its customer was told.
	number int64
}

// placements are all orders, answered.
type placements struct {
	orders  []*order
	retries int64
}

// wanted draws the orders.
func wanted(c Config) (all []*order) {
	lots := rand.New(rand.NewPCG(c.Seed, 2))
	for i := range c.Orders {
		all = append(all, &order{
			Reference: fmt.Sprintf("%d-%d", c.Seed, i+1), MailTo: fmt.Sprintf("customer-%d@example.org", i+1),
			Article: warehouse.Articles()[lots.IntN(len(warehouse.Articles()))], Quantity: 1 + lots.Int64N(mostOrdered),
		})
	}
	return all
}

// customers place orders.
type customers struct {
	url    string
	http   *http.Client
	sent   atomic.Int64
	broken bool
}

// place has each order placed, once it is its turn, by many at once, until it is answered
// for good.
func place(ctx context.Context, c Config, url string, turns <-chan struct{}) (placements, error) {
	all := placements{orders: wanted(c)}
	base := &http.Transport{MaxIdleConnsPerHost: c.Clients, ResponseHeaderTimeout: answerLimit}
	defer base.CloseIdleConnections()
	cs := &customers{url: url, broken: c.Broken == BrokenKey}
	transport := &idemhttp.Transport{Base: counting{base, &cs.sent}, Attempts: tries}
	if cs.broken {
		transport.Attempts = 1
	}
	cs.http = &http.Client{Transport: transport}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	queue := make(chan *order)
	var working sync.WaitGroup
	for range c.Clients {
		working.Go(func() {
			for o := range queue {
				if err := cs.insist(ctx, o); err != nil {
					giveUp(fmt.Errorf("order %s: %w", o.Reference, err))
				}
			}
		})
	}
	for _, o := range all.orders {
		select {
		case <-turns:
		case <-ctx.Done():
		}
		select {
		case queue <- o:
		case <-ctx.Done():
		}
	}
	close(queue)
	working.Wait()
	all.retries = cs.sent.Load() - int64(c.Orders)
	return all, context.Cause(ctx)
}

// insist sends an order until it is answered for good. The key is made once, here, where
// the order begins: the transport repeats by itself, and what it gives up goes on.
func (cs *customers) insist(ctx context.Context, o *order) error {
	ctx, cancel := context.WithTimeout(ctx, placeLimit)
	defer cancel()
	for key := idem.NewKey(); ; {
		if cs.broken {
			key = idem.NewKey()
		}
		response, err := cs.send(idemhttp.WithKey(ctx, key), o)
		if err == nil && !idemhttp.KeepKey(response, nil) {
			return o.read(response)
		}
		if err == nil {
			err = fmt.Errorf("status %d %s", response.StatusCode, idemhttp.ReasonOf(response))
			_ = response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it was not answered for good: %w", errors.Join(ctx.Err(), err))
		case <-time.After(again):
		}
	}
}

func (cs *customers) send(ctx context.Context, o *order) (*http.Response, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cs.url+"/orders", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return cs.http.Do(request)
}

// read notes the number that the order has got.
func (o *order) read(response *http.Response) error {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var placed orders.Placed
	if response.StatusCode != http.StatusCreated || json.Unmarshal(body, &placed) != nil || placed.Number == 0 {
		return fmt.Errorf("it is answered with status %d: %s", response.StatusCode, body)
	}
	o.number = placed.Number
	return nil
}

// counting counts what is sent.
type counting struct {
	http.RoundTripper
	sent *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

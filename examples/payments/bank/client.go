package bank

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// What the bank refuses with.
var (
	// ErrDeclined: refused for good; nothing was booked.
	ErrDeclined = errors.New("the bank has declined the card")
	// ErrBusy: nothing was booked; it may come again.
	ErrBusy = errors.New("the bank is busy")
)

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 64 << 10

// Client calls a bank. An error that is not one of this package leaves open whether it
// has booked.
type Client struct {
	url  string
	http *http.Client
}

// NewClient makes a client of the bank at a URL: "http://host:port".
func NewClient(url string) *Client {
	return &Client{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Book asks for a booking.
//
// The reference is in the body: a POST with a header Idempotency-Key is repeated by Go's
// HTTP client itself, which is right only where the other side knows that header.
func (c *Client) Book(ctx context.Context, r Request) (*Booking, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	booking := &Booking{}
	switch status, err := c.call(ctx, http.MethodPost, "/bookings", body, booking); {
	case err != nil:
		return nil, err
	case status == http.StatusPaymentRequired:
		return nil, ErrDeclined
	case status == http.StatusServiceUnavailable:
		return nil, ErrBusy
	case status != http.StatusCreated:
		return nil, fmt.Errorf("the bank answers with status %d", status)
	}
	return booking, nil
}

// Find looks in the statement for what was booked under a reference; nil = nothing, so
// far.
func (c *Client) Find(ctx context.Context, reference string) (*Booking, error) {
	var lines []Booking
	switch status, err := c.call(ctx, http.MethodGet, "/bookings?reference="+url.QueryEscape(reference), nil, &lines); {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("the bank answers with status %d", status)
	case len(lines) == 0:
		return nil, nil
	}
	return &lines[0], nil
}

// call reads an answer of status 2xx.
func (c *Client) call(ctx context.Context, method, path string, body []byte, answer any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil || response.StatusCode/100 != 2 {
		return response.StatusCode, err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return 0, fmt.Errorf("the bank's answer can't be read: %w", err)
	}
	return response.StatusCode, nil
}

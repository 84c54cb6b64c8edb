package bank

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// What the bank refuses with.
var (
	// ErrDeclined: refused for good; nothing was charged.
	ErrDeclined = errors.New("the bank has declined the charge")
	// ErrBusy: nothing was charged; try again.
	ErrBusy = errors.New("the bank is busy")
	// ErrFenced: a later attempt was at the bank; this one has charged nothing.
	ErrFenced = errors.New("the bank has seen a later attempt")
)

// Client calls a bank. Any error that is not one of this package leaves open whether
// the charge was made.
type Client struct {
	http *http.Client
	url  string
}

// NewClient makes a client of the bank at a URL. It keeps as many connections open as
// there are calls at once, up to conns.
func NewClient(url string, conns int) *Client {
	return &Client{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: conns, DisableCompression: true}}}
}

// Charge charges and returns the receipt, byte for byte.
//
// The name travels in the body: Go's HTTP client repeats a POST by itself if it has a
// header Idempotency-Key, and this bank would charge twice.
func (c *Client) Charge(ctx context.Context, request Request) (receipt []byte, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	status, answer, err := c.do(ctx, http.MethodPost, "/charges", body)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusCreated:
		return answer, nil
	case status == http.StatusPaymentRequired:
		return nil, ErrDeclined
	case status == http.StatusServiceUnavailable:
		return nil, ErrBusy
	case status == http.StatusConflict:
		return nil, ErrFenced
	}
	return nil, fmt.Errorf("the bank answers with status %d", status)
}

// Find asks the ledger for what was charged under a name; nil = nothing.
func (c *Client) Find(ctx context.Context, name string) (receipt []byte, err error) {
	status, answer, err := c.do(ctx, http.MethodGet, "/charges/"+name, nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("the bank answers with status %d", status)
	}
	var found []json.RawMessage
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, fmt.Errorf("the bank's ledger can't be read: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return append(found[0], '\n'), nil // as Charge returns it
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, 64<<10))
	return response.StatusCode, answer, err
}

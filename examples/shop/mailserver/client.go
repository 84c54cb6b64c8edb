package mailserver

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

// ErrRefused says that the mail will never be delivered.
var ErrRefused = errors.New("the mail server refuses the mail")

// Client calls a mail server. An error other than ErrRefused leaves open whether the mail
// is delivered.
type Client struct {
	url  string
	http *http.Client
}

// NewClient makes a client of the server at a URL: "http://host:port".
func NewClient(url string) *Client {
	return &Client{url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Send hands over a mail.
func (c *Client) Send(ctx context.Context, mail Mail) error {
	body, err := json.Marshal(mail)
	if err != nil {
		return err
	}
	response, err := c.call(ctx, http.MethodPost, "/mails", body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be used again
	switch response.StatusCode {
	case http.StatusAccepted:
		return nil
	case http.StatusBadRequest:
		return ErrRefused
	}
	return fmt.Errorf("the mail server answers with status %d", response.StatusCode)
}

// Find lists the mails that were delivered under a key; "" = all.
func (c *Client) Find(ctx context.Context, key string) (mails []Mail, err error) {
	response, err := c.call(ctx, http.MethodGet, "/mails?key="+url.QueryEscape(key), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the mail server answers with status %d", response.StatusCode)
	}
	err = json.NewDecoder(response.Body).Decode(&mails)
	return mails, err
}

func (c *Client) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return c.http.Do(request)
}

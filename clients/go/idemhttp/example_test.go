package idemhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
)

// A handler behind a guard, and a client that sends one request twice. A real program
// gives idem.New a connection to an idemd.
func Example() {
	client := idem.New(fakedaemon.New(), idem.Options{Tenant: "shop"})
	guard, err := idemhttp.New(client, idemhttp.Config{
		Validate: func(r *http.Request) error {
			if r.ContentLength == 0 {
				return errors.New("there is no order")
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	orders := 0
	mux := http.NewServeMux()
	mux.Handle("POST /orders", guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		orders++
		w.Header().Set("Location", fmt.Sprint("/orders/", orders))
		w.WriteHeader(http.StatusCreated)
	})))
	server := httptest.NewServer(mux)
	defer server.Close()
	for range 2 {
		r, err := http.NewRequest(http.MethodPost, server.URL+"/orders", strings.NewReader("tea"))
		if err != nil {
			panic(err)
		}
		r.Header.Set(idemhttp.KeyHeader, "order-1042") // the same on every retry
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		fmt.Printf("%d %s replayed: %q\n", response.StatusCode, response.Header.Get("Location"), response.Header.Get(idemhttp.ReplayedHeader))
	}
	// Output:
	// 201 /orders/1 replayed: ""
	// 201 /orders/1 replayed: "true"
}

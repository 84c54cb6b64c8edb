//go:build unix

package idemhttp_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
)

// nowhere is an answer that goes nowhere.
type nowhere struct {
	header http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(status int)      { n.status = status }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// What a guarded request costs above its two RPCs: the middleware and the client, on a
// request of 200 bytes or as said, and an answer of 200, less what the same handler costs unguarded (the
// last line).
func BenchmarkGuardedRequest(b *testing.B) {
	client := guardtest.FreeClient()
	text := strings.Repeat("x", 200)
	item := `{"sku":"a-1042","amount":1042,"price":"19.90","note":"` + strings.Repeat("n", 45) + `"},`
	small := `{"amount":1042,"currency":"EUR","note":"` + text[:150] + `"}`
	large := `{"customer":"ann","items":[` + strings.Repeat(item, 20) + `{}]}` // 2 KiB
	strict := idemhttp.Config{Fingerprint: fingerprint.HTTPRules{Rules: fingerprint.Rules{Strict: true}}}
	for _, c := range []struct {
		name, contentType, body string
		config                  idemhttp.Config
	}{
		{"bytes", "text/plain", text, idemhttp.Config{}},
		{"JSON", "application/json", small, idemhttp.Config{}},
		{"strict JSON", "application/json", small, strict},
		{"JSON of 2 KiB", "application/json", large, idemhttp.Config{}},
		{"strict JSON of 2 KiB", "application/json", large, strict},
		{"unguarded", "text/plain", text, idemhttp.Config{Need: idemhttp.Off}},
	} {
		b.Run(c.name, func(b *testing.B) {
			guard, err := idemhttp.New(client, c.config)
			if err != nil {
				b.Fatal(err)
			}
			answer := []byte(text)
			h := guard.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "/orders/1042")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write(answer)
			}))
			r, err := http.NewRequest(http.MethodPost, "/orders", nil)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set(idemhttp.KeyHeader, "order-1042")
			r.Header.Set("Content-Type", c.contentType)
			body := strings.NewReader("")
			guardtest.Measure(b, func() {
				body.Reset(c.body)
				r.Body, r.ContentLength = io.NopCloser(body), int64(len(c.body))
				w := &nowhere{header: http.Header{}}
				if h.ServeHTTP(w, r); w.status != http.StatusCreated {
					b.Fatal(w.status)
				}
			})
		})
	}
}

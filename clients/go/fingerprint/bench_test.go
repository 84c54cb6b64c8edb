package fingerprint_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/fingerprint"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// order is a document of about a kilobyte, as a shop gets it.
func order() []byte {
	var items []string
	for i := range 8 {
		items = append(items, fmt.Sprintf(`{"sku":"SKU-%04d","quantity":%d,"price":"%d.50","note":"for \"you\"","tags":["a","b"]}`, i, i+1, i))
	}
	return []byte(`{"id":"order-1042","customer":{"name":"Ann Example","email":"ann@example.com"},"amount":99.5,"items":[` + strings.Join(items, ",") + `]}`)
}

func BenchmarkJSON(b *testing.B) {
	for name, r := range map[string]fingerprint.Rules{
		"everything": {}, "strict": {Strict: true}, "selected": {Exclude: []string{"/items/*/note"}, Decimals: []string{"/items/*/price"}},
	} {
		b.Run(name, func(b *testing.B) {
			j, err := fingerprint.NewJSON(r)
			if err != nil {
				b.Fatal(err)
			}
			document := order()
			b.SetBytes(int64(len(document)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := j.Sum("user-7", document); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHTTP(b *testing.B) {
	var h fingerprint.HTTP
	r := fingerprint.Request{
		Method: "POST", Pattern: "POST /orders/{id}/pay", Path: "/orders/1042/pay", Query: "b=2&a=1", Body: order(),
		Header: http.Header{"Content-Type": {"application/json"}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Sum("user-7", r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProto(b *testing.B) {
	m := &idemdv1.CompleteRequest{
		Tenant: "acme", Namespace: "payments", Key: "charge-42", OwnerToken: make([]byte, 16), Retention: durationpb.New(3600e9),
		Result: &idemdv1.Result{Status: 201, Body: bytes.Repeat([]byte("b"), 512)},
	}
	for i := range 8 {
		m.Result.Headers = append(m.Result.Headers, &idemdv1.Header{Name: fmt.Sprint("header-", i), Value: []byte("value")})
	}
	var p fingerprint.Proto
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Sum("user-7", m); err != nil {
			b.Fatal(err)
		}
	}
}

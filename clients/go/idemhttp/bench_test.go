//go:build unix

package idemhttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// granting is a connection that grants everything, at no cost.
type granting struct{ owned *idemdv1.ReserveResponse }

func (g granting) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if r, is := reply.(*idemdv1.ReserveResponse); is {
		r.Decision = g.owned.GetDecision()
	}
	return nil
}

func (g granting) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, nil
}

// nowhere is an answer that goes nowhere.
type nowhere struct {
	header http.Header
	status int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(status int)      { n.status = status }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }

// What a guarded request costs above its two RPCs: the middleware and the client, on a
// request and an answer of 200 bytes, less what the same handler costs unguarded (the
// last line); "cpu-ns/op" is the CPU time of the whole process.
func BenchmarkGuardedRequest(b *testing.B) {
	client := idem.New(granting{&idemdv1.ReserveResponse{Decision: &idemdv1.ReserveResponse_Owned{Owned: &idemdv1.Owned{
		Attempt: 1, Fence: 1, LeaseRemaining: durationpb.New(30 * time.Second),
	}}}}, idem.Options{Tenant: "acme"})
	text := strings.Repeat("x", 200)
	document := `{"amount":1042,"currency":"EUR","note":"` + text[:150] + `"}`
	for _, c := range []struct {
		name, contentType, body string
		need                    idemhttp.Need
	}{{"bytes", "text/plain", text, 0}, {"JSON", "application/json", document, 0}, {"unguarded", "text/plain", text, idemhttp.Off}} {
		b.Run(c.name, func(b *testing.B) {
			guard, err := idemhttp.New(client, idemhttp.Config{Need: c.need})
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
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				body.Reset(c.body)
				r.Body = io.NopCloser(body)
				w := &nowhere{header: http.Header{}}
				if h.ServeHTTP(w, r); w.status != http.StatusCreated {
					b.Fatal(w.status)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

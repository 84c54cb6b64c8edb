package storetest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// At is an address of the usual tenant and namespace.
func At(key string) reservation.Address {
	return reservation.Address{Tenant: "acme", Namespace: "payments", Key: key}
}

// Token is the n-th caller's token.
func Token(n int) reservation.Token {
	token := bytes.Repeat([]byte{0xa5}, 24)
	binary.BigEndian.PutUint64(token[16:], uint64(n))
	return token
}

// Print is the n-th operation's fingerprint.
func Print(n int) reservation.Fingerprint {
	digest := bytes.Repeat([]byte{0x5a}, 32)
	binary.BigEndian.PutUint64(digest, uint64(n))
	return reservation.Fingerprint{Scheme: "test-v1", Digest: digest}
}

// Lease and Retention are those of the commands made here.
const (
	Lease     = 30 * time.Second
	Retention = time.Hour
)

// Reserve is caller n's Reserve of the first operation.
func Reserve(address reservation.Address, n int, edits ...func(*reservation.Reserve)) *reservation.Reserve {
	c := &reservation.Reserve{
		Address: address, Fingerprint: Print(1), Token: Token(n), Lease: Lease,
		LeaseCap: reservation.DefaultLeaseCap, Retention: Retention, OnLapse: reservation.Hold,
		Attempts: reservation.DefaultAttempts, Owner: fmt.Sprintf("caller-%d", n), PolicyVersion: "2026-11",
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// Rerunnable lets a lapse be taken over.
func Rerunnable(c *reservation.Reserve) { c.OnLapse = reservation.Rerun }

// LeaseOf sets the lease.
func LeaseOf(d time.Duration) func(*reservation.Reserve) {
	return func(c *reservation.Reserve) { c.Lease = d }
}

// RetentionOf sets the retention.
func RetentionOf(d time.Duration) func(*reservation.Reserve) {
	return func(c *reservation.Reserve) { c.Retention = d }
}

// AttemptsOf sets how many attempts are allowed.
func AttemptsOf(n int32) func(*reservation.Reserve) {
	return func(c *reservation.Reserve) { c.Attempts = n }
}

// Complete is caller n's Complete with a body.
func Complete(address reservation.Address, n int, body string) *reservation.Complete {
	return &reservation.Complete{Address: address, Token: Token(n), Result: Answer(body)}
}

// Fail is caller n's Fail with a body.
func Fail(address reservation.Address, n int, kind reservation.OutcomeKind, body string) *reservation.Fail {
	return &reservation.Fail{Address: address, Token: Token(n), Kind: kind, Result: Answer(body)}
}

// Extend is caller n's Extend.
func Extend(address reservation.Address, n int) *reservation.Extend {
	return &reservation.Extend{Address: address, Token: Token(n), Lease: Lease}
}

// Lookup is a Lookup.
func Lookup(address reservation.Address) *reservation.Lookup {
	return &reservation.Lookup{Address: address}
}

// Resolve is a verdict at a version.
func Resolve(address reservation.Address, version int64, verdict reservation.Verdict, body string) *reservation.Resolve {
	c := &reservation.Resolve{
		Address: address, ExpectedVersion: version, Verdict: verdict,
		Actor: "olga", Reason: "asked the bank", Evidence: "statement 17, line 4",
	}
	if verdict != reservation.VerdictNotExecuted {
		result := Answer(body)
		c.Result = &result
	}
	return c
}

// Erase is an operator's Erase at any version.
func Erase(address reservation.Address) *reservation.Erase {
	return &reservation.Erase{Address: address, Actor: "olga", Reason: "article 17\nticket 9 \u2713"}
}

// Trace is the n-th trace context.
func Trace(n int) (trace reservation.TraceContext) {
	for i := range trace {
		trace[i] = byte(n + i)
	}
	return trace
}

// Answer is a result that uses every field, with bytes that text columns, JSON and C
// strings would spoil.
func Answer(body string) reservation.Result {
	return reservation.Result{
		Status:      201,
		Headers:     []reservation.Header{{Name: "Location", Value: []byte("/charges/ch_1")}, {Name: "x-raw-bin", Value: []byte{0, 0xff, '\n'}}},
		ContentType: "application/json; charset=utf-8",
		Body:        []byte("\x00\xff{\"b\":1.0, \"a\":1e2,\"a\":3}" + body),
		DecisionID:  "ch_1",
	}
}

package idem_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
)

// The bank stands for any API that takes an idempotency key of its own.
func charge(_ context.Context, key string, cents int) (string, error) {
	return fmt.Sprintf("%d cents charged as %s", cents, key), nil
}

func find(context.Context, string) (string, bool, error) { return "", false, nil }

// A charge happens once, however often it is asked for. (It needs a daemon: idemd serve.)
func Example() {
	conn, err := grpc.NewClient("127.0.0.1:7070",
		append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := idem.New(conn, idem.Options{Tenant: "shop", Namespace: "payments"})
	defer func() { _ = client.Close(context.Background()) }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	operation := idem.Operation{
		Key:         "order-1042", // the same on every retry
		Fingerprint: idem.SHA256("charge-v1", []byte("order-1042 1000 EUR")),
		Reconcile: func(ctx context.Context, u *idem.Unresolved) (idem.Verdict, error) {
			receipt, found, err := find(ctx, u.DeriveKey("charge"))
			if err != nil || !found {
				return idem.WasNotExecuted(), err
			}
			return idem.WasExecuted(&idem.Result{Body: []byte(receipt)}), nil
		},
	}
	answer, err := client.Do(ctx, operation, func(ctx context.Context, g *idem.Grant) (*idem.Result, error) {
		receipt, err := charge(ctx, g.DeriveKey("charge"), 1000)
		if err != nil {
			return nil, err // it may have been charged: nobody repeats it blindly
		}
		return &idem.Result{Status: 201, Body: []byte(receipt)}, nil
	})
	var refused *idem.FinalError
	switch {
	case errors.As(err, &refused):
		fmt.Println("refused:", refused)
	case err != nil && idem.KeepKey(err):
		fmt.Println("repeat it with the same key:", err)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(string(answer.Result.GetBody()), answer.Replayed)
	}
}

// A key for a downstream call is the same on every attempt.
func ExampleGrant_DeriveKey() {
	first := idem.Grant{Tenant: "acme", Namespace: "payments", Key: "charge-42", Attempt: 1}
	second := idem.Grant{Tenant: "acme", Namespace: "payments", Key: "charge-42", Attempt: 2, Takeover: true}
	fmt.Println(first.DeriveKey("confirmation-mail"))
	fmt.Println(second.DeriveKey("confirmation-mail"))
	// Output:
	// 01ae8c32-e103-8d10-b1a8-85605c296171
	// 01ae8c32-e103-8d10-b1a8-85605c296171
}

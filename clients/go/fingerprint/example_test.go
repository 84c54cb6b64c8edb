package fingerprint_test

import (
	"bytes"
	"fmt"

	"github.com/idemd/idemd/clients/go/fingerprint"
)

// A retry has another time stamp and writes the amount otherwise. It is the same request;
// one with another amount, or of another user, is not.
func ExampleJSON() {
	orders, err := fingerprint.NewJSON(fingerprint.Rules{
		Operation: "create-order-v1",
		Exclude:   []string{"/createdAt"},
		Decimals:  []string{"/amount"},
	})
	if err != nil {
		panic(err)
	}
	sum := func(user, document string) []byte {
		what, err := orders.Sum(user, []byte(document)) // for idem.Operation.Fingerprint
		if err != nil {
			panic(err)
		}
		return what.Digest
	}
	first := sum("user-7", `{"amount":"10.00","createdAt":"14:00:01"}`)
	fmt.Println(bytes.Equal(first, sum("user-7", `{"createdAt":"14:00:09", "amount":10}`)))
	fmt.Println(bytes.Equal(first, sum("user-7", `{"amount":"10.01","createdAt":"14:00:01"}`)))
	fmt.Println(bytes.Equal(first, sum("user-8", `{"amount":"10.00","createdAt":"14:00:01"}`)))
	// Output:
	// true
	// false
	// false
}

package idemgrpc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemgrpc"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
)

func TestAWrongConfigurationIsRefusedWhenItIsBuilt(t *testing.T) {
	client := idem.New(fakedaemon.New(), idem.Options{})
	for text, c := range map[string]idemgrpc.Config{
		"looks like /package.Service/Method": {Methods: map[string]idemgrpc.Guard{"UnaryCall": {}}},
		"service is not known":               {Methods: map[string]idemgrpc.Guard{"/shop.v1.Orders/Create": {}}},
		`no method "Unary"`:                  {Methods: map[string]idemgrpc.Guard{"/grpc.testing.TestService/Unary": {}}},
		"only unary methods can be guarded":  {Methods: map[string]idemgrpc.Guard{streams: {}}},
		"there is no mode 7":                 guarding(idemgrpc.Guard{Mode: 7}),
		"there is no need 9":                 guarding(idemgrpc.Guard{Need: 9}),
		"the lease is 1ms":                   guarding(idemgrpc.Guard{Lease: time.Millisecond}),
		"the retention is -1s":               guarding(idemgrpc.Guard{Retention: -time.Second}),
		`the namespace "a b"`:                guarding(idemgrpc.Guard{Namespace: "a b"}),
		"the policy version":                 guarding(idemgrpc.Guard{PolicyVersion: strings.Repeat("x", 65)}),
		`no string field "request_id"`:       guarding(idemgrpc.Guard{KeyField: "request_id"}),
		`no string field "response_size"`:    guarding(idemgrpc.Guard{KeyField: "response_size"}),
		`no field "amount"`:                  guarding(idemgrpc.Guard{Fingerprint: fingerprint.Rules{Exclude: []string{"amount"}}}),
		`"grpc-status" can't be a header`:    {Headers: []string{"grpc-status"}},
		`"a header" can't be a header`:       {Headers: []string{"a header"}},
	} {
		if _, err := idemgrpc.UnaryServerInterceptor(client, c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("built with %v, want %q", err, text)
		}
	}
	if _, err := idemgrpc.UnaryServerInterceptor(nil, guarding(idemgrpc.Guard{})); err == nil {
		t.Error("built without a client")
	}
}

func TestAllThatIsWrongIsToldAtOnce(t *testing.T) {
	_, err := idemgrpc.UnaryServerInterceptor(idem.New(fakedaemon.New(), idem.Options{}), idemgrpc.Config{Methods: map[string]idemgrpc.Guard{
		unary: {Mode: 7}, empty: {Need: 9},
	}})
	if err == nil || !strings.Contains(err.Error(), unary) || !strings.Contains(err.Error(), empty) {
		t.Errorf("built with %v", err)
	}
}

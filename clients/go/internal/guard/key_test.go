package guard

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

// Whatever the transport, by the letter of RFC 8941, section 3.3.3.
func TestAKeyInQuotesIsTheBareOneAndAMalformedStringIsRefused(t *testing.T) {
	long := strings.Repeat("k", maxKeyBytes)
	for value, want := range map[string]string{
		`k-1`:              `k-1`,
		`"k-1"`:            `k-1`,
		`"a\\b"`:           `a\b`,
		`a\b`:              `a\b`,
		`a\\b`:             `a\\b`, // not quoted: nothing is escaped
		`"` + long + `"`:   long,
		`"\\\\"`:           `\\`,
		`"a\b"`:            ``,
		`"a\"`:             ``,
		`"a\`:              ``,
		`"a`:               ``,
		`"`:                ``,
		`""`:               ``,
		`"a"b`:             ``,
		`"a" `:             ``,
		`"a";p=1`:          ``,
		`"a", "b"`:         ``,
		`"a","b"`:          ``,
		`"a,b"`:            ``,
		`a, b`:             ``, // what proxies make of two headers
		`a,b`:              ``,
		`a,a`:              ``,
		`"a\"b"`:           ``, // a string, but of what is no key
		`a"b`:              ``,
		`'a'`:              `'a'`,
		`"a b"`:            ``,
		`"` + long + `k"`:  ``,
		long + `k`:         ``,
		"\"a\x7f\"":        ``,
		`"` + "ключ" + `"`: ``,
		``:                 ``,
	} {
		key, err := Key("Key", []string{value})
		if key != want || (err == nil) != (want != "") {
			t.Errorf("%q is read as %q, %v, want %q", value, key, err, want)
		}
		if err != nil && len(value) > 6 && strings.Contains(err.Error(), strings.Trim(value, `"`)) {
			t.Errorf("the key is in the error: %v", err)
		}
	}
	if key, err := Key("Key", nil); key != "" || err != nil {
		t.Errorf("without one: %q, %v", key, err)
	}
	if _, err := Key("Key", []string{"k", "k"}); err == nil {
		t.Error("two are taken")
	}
}

func TestIncomingKeysOfEveryKindAndFormAreTakenOut(t *testing.T) {
	plain := t.Context()
	byMetadata := metadata.NewIncomingContext(plain, metadata.Pairs(metadataKey, `"of-grpc"`))
	byBoth := WithIncoming(WithIncoming(byMetadata, `of-http`), `"within"`)
	for _, c := range []struct {
		ctx        context.Context
		sent, want []string
	}{
		{plain, []string{"k"}, []string{"k"}},
		{WithIncoming(plain), []string{"k"}, []string{"k"}},
		{byMetadata, []string{"of-grpc", "k"}, []string{"k"}},
		{byMetadata, []string{`"of-grpc"`}, nil},
		{byMetadata, []string{`of-grpc"`, `of-http`}, []string{`of-grpc"`, `of-http`}},
		{byBoth, []string{"of-grpc", `"of-http"`, "within", "k"}, []string{"k"}},
		{byBoth, nil, nil},
	} {
		sent := slices.Clone(c.sent)
		if got := WithoutIncoming(c.ctx, sent); !slices.Equal(got, c.want) {
			t.Errorf("of %q %q are left, want %q", c.sent, got, c.want)
		}
		if !slices.Equal(sent, c.sent) {
			t.Errorf("the caller's own list is now %q", sent)
		}
	}
}

package fingerprint_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/idemd/idemd/clients/go/fingerprint"
)

func TestAChangedTimeStampIsAReplayAndAChangedAmountIsNone(t *testing.T) {
	first := `{"amount":10,"createdAt":"2026-11-30T14:00:00Z","meta":{"attempt":1,"shop":7},"items":[{"sku":"a","seen":1}]}`
	retry := `{"amount":10,"createdAt":"2026-11-30T14:00:09Z","meta":{"attempt":2,"shop":7},"items":[{"sku":"a","seen":2}]}`
	for name, r := range map[string]fingerprint.Rules{
		"exclude": {Exclude: []string{"/createdAt", "/meta/attempt", "/items/*/seen"}},
		"include": {Include: []string{"/amount", "/meta/shop", "/items/*/sku"}},
		"both":    {Include: []string{"/amount", "/meta", "/items"}, Exclude: []string{"/meta/attempt", "/items/0/seen"}},
	} {
		t.Run(name, func(t *testing.T) {
			allEqual(t, r, first, retry)
			allDiffer(t, r, first, strings.Replace(retry, "10", "11", 1), strings.Replace(retry, `"a"`, `"b"`, 1), strings.Replace(retry, "7", "8", 1))
		})
	}
}

func TestWhatIsExcludedNeedsNoCanonicalForm(t *testing.T) {
	r := fingerprint.Rules{Exclude: []string{"/trace"}, Strict: true}
	allEqual(t, r, `{"a":1,"trace":1e400}`, `{"a":1,"trace":9007199254740993}`, `{"a":1}`)
}

// A misspelt path must not make all documents equal.
func TestADocumentOfWhichNothingIsIncludedIsNotEqualToAnother(t *testing.T) {
	r := fingerprint.Rules{Include: []string{"/amuont"}}
	allDiffer(t, r, `{"amount":1}`, `{"amount":2}`, `{}`)
	r.Strict = true
	if _, err := mustJSON(t, r).Sum("", []byte(`{"amount":1}`)); problemOf(err) != fingerprint.NothingIncluded {
		t.Errorf("%v", err)
	}
}

func TestANewRuleChangesNothingForDocumentsWithoutTheField(t *testing.T) {
	document := `{"amount":10,"items":[{"sku":"a"}]}`
	want := sumOf(t, fingerprint.Rules{}, document)
	for _, r := range []fingerprint.Rules{
		{Exclude: []string{"/trace", "/items/*/trace", "/items/0/x/y", "/amount/x"}}, {Decimals: []string{"/fee"}}, {Times: []string{"/at"}},
		{Emails: []string{"/email"}}, {Defaults: map[string]string{"/currency": `"EUR"`}}, {Strict: true},
	} {
		if sumOf(t, r, document) != want {
			t.Errorf("%+v changes it", r)
		}
	}
}

func TestAmountsTimesAndAddressesAreComparedAsSuchWhereAskedFor(t *testing.T) {
	r := fingerprint.Rules{Decimals: []string{"/amount"}, Times: []string{"/at"}, Emails: []string{"/to"}}
	allEqual(t, r, `{"amount":"10.50","at":"2026-11-30T15:00:00+01:00","to":" Ann@Example.com"}`,
		`{"amount":1.05e1,"at":"2026-11-30T14:00:00.0Z","to":"ann@example.com"}`)
	allDiffer(t, r, `{"amount":"10.50"}`, `{"amount":"10.05"}`, `{"amount":"-10.50"}`, `{"amount":"10.50 "}`, `{"amount":"10,50"}`, `{"amount":null}`,
		`{"amount":9007199254740993}`, `{"amount":9007199254740992}`, `{"amount":"0.1"}`, `{"amount":"0.10000000000000001"}`,
		`{"at":"2026-11-30T14:00:00Z"}`, `{"at":"2026-11-30T14:00:00.000000001Z"}`, `{"at":"2026-11-30T14:00:00.0000000001Z"}`,
		`{"to":"ann@example.com"}`, `{"to":"an@example.com"}`, `{"to":"a nn@example.com"}`)
	allDiffer(t, fingerprint.Rules{}, `{"amount":"10.5"}`, `{"amount":"10.50"}`, `{"amount":10.5}`, `{"to":"A"}`, `{"to":"a"}`, `{"to":"a "}`)
	if fingerprint.Decimal("1.050e1") != "105e-1" || fingerprint.Time("2026-11-30T15:00:00+01:00") != "2026-11-30T14:00:00Z" || fingerprint.Email(" A@b\n") != "a@b" {
		t.Error("the functions do otherwise")
	}
}

func TestADefaultThatIsSaidIsTheSameAsOneThatIsNot(t *testing.T) {
	r := fingerprint.Rules{Defaults: map[string]string{"/currency": ` "EUR" `, "/fee": "0.0", "/tags": "[ ]", "/order/note": "null"}, Decimals: []string{"/fee"}}
	allEqual(t, r, `{"a":1,"order":{}}`, `{"a":1,"order":{"note":null},"currency":"EUR","fee":"0.00","tags":[]}`)
	allDiffer(t, r, `{"a":1}`, `{"a":1,"currency":"USD"}`, `{"a":1,"currency":null}`, `{"a":1,"fee":1}`, `{"a":1,"tags":[0]}`, `{"a":1,"order":{}}`)
	r = fingerprint.Rules{Include: []string{"/currency"}, Defaults: map[string]string{"/currency": `"EUR"`}}
	allEqual(t, r, `{"currency":"EUR"}`, `{}`, `{"x":1}`)
	allDiffer(t, r, `{}`, `{"currency":"USD"}`)
}

func TestSubjectAndOperationArePartOfEveryFingerprint(t *testing.T) {
	seen := map[string]bool{}
	for _, operation := range []string{"", "a", "ab", "b"} {
		for _, subject := range []string{"", "b", "a", "ba"} {
			r := fingerprint.Rules{Operation: operation}
			for name, sum := range sums(t, r, subject) {
				if seen[sum] {
					t.Errorf("%s: operation %q and subject %q change nothing", name, operation, subject)
				}
				seen[sum] = true
			}
		}
	}
}

// sums are the digests of each kind, canonical and raw.
func sums(t *testing.T, r fingerprint.Rules, subject string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, document := range map[string]string{"json": `{}`, "json-raw": `{`} {
		f, err := mustJSON(t, r).Sum(subject, []byte(document))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(f.Digest)
	}
	h, err := fingerprint.NewHTTP(fingerprint.HTTPRules{Rules: r})
	if err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]string{"http": "", "http-raw": "%"} {
		f, err := h.Sum(subject, fingerprint.Request{Path: "/", Query: query})
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(f.Digest)
	}
	all["proto"] = protoSum(t, r, subject, orderMessage(t, newSchema, `order: {id: "1"}`))
	return all
}

func TestRulesThatCanNotHoldAreRefused(t *testing.T) {
	for name, r := range map[string]fingerprint.Rules{
		"no slash":            {Exclude: []string{"amount"}},
		"a tilde":             {Include: []string{"/a~2b"}},
		"everything excluded": {Exclude: []string{""}},
		"two forms":           {Decimals: []string{"/a"}, Emails: []string{"/a"}},
		"no JSON":             {Defaults: map[string]string{"/a": `EUR`}},
		"an inexact default":  {Defaults: map[string]string{"/a": `9007199254740993`}},
	} {
		if _, err := fingerprint.NewJSON(r); err == nil {
			t.Errorf("JSON: %s is not refused", name)
		}
		if _, err := fingerprint.NewHTTP(fingerprint.HTTPRules{Rules: r}); err == nil {
			t.Errorf("HTTP: %s is not refused", name)
		}
	}
	if _, err := fingerprint.NewHTTP(fingerprint.HTTPRules{Headers: []string{""}}); err == nil {
		t.Error("a header without a name is not refused")
	}
	_, err := fingerprint.NewJSON(fingerprint.Rules{Exclude: []string{"first", "/a", "second"}})
	if err == nil || !strings.Contains(err.Error(), `"first"`) || !strings.Contains(err.Error(), `"second"`) {
		t.Errorf("%v does not name the paths", err)
	}
}

func TestSchemesHaveNamesThatTheDaemonTakes(t *testing.T) {
	for _, scheme := range []string{
		fingerprint.SchemeJSON, fingerprint.SchemeJSONRaw, fingerprint.SchemeProto, fingerprint.SchemeProtoRaw, fingerprint.SchemeHTTP, fingerprint.SchemeHTTPRaw,
	} {
		if !regexp.MustCompile(`^[a-z0-9._-]{1,32}$`).MatchString(scheme) {
			t.Errorf("%q is none", scheme)
		}
	}
}

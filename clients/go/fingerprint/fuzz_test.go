package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/idemd/idemd/clients/go/fingerprint"
)

// Whatever comes: what has a canonical form is JSON, has the form that jsontext gives it,
// and keeps it; everything else is refused by strict rules and hashed raw by others.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,{"z":1e-7,"a":"\u000F\/"}],"a":null}`, `{"a":1,"\u0061":2}`, `"\ud83d\ude00"`, `[1,]`, `-0`, `1e400`, `9007199254740993`,
		"{\"\ufb33\":1,\"\U0001F600\":2}", "\"\xff\"", `{"a":{"A":1,"a":2}}`, `[[[]]]`, ``, `tru`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, document []byte, strict bool) {
		j, err := fingerprint.NewJSON(fingerprint.Rules{Strict: strict})
		if err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(document)
		canonical, err := j.Canonical(document)
		sum, sumErr := j.Sum("", document)
		if !bytes.Equal(before, document) {
			t.Fatal("the document was changed")
		}
		if err != nil {
			if problemOf(err) == "" || strict != (sumErr != nil) || !strict && sum.Scheme != fingerprint.SchemeJSONRaw {
				t.Fatalf("%v: %s %v", err, sum.Scheme, sumErr)
			}
			return
		}
		if !json.Valid(document) || !utf8.Valid(document) || sumErr != nil || sum.Scheme != fingerprint.SchemeJSON {
			t.Fatalf("%q is no JSON, or %v", document, sumErr)
		}
		theirs := jsontext.Value(bytes.Clone(document))
		if err := theirs.Canonicalize(); err != nil || !bytes.Equal(theirs, canonical) {
			t.Fatalf("%q, jsontext says %q %v", canonical, theirs, err)
		}
		if again, err := j.Canonical(canonical); err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("%q becomes %q %v", canonical, again, err)
		}
	})
}

// Rules make nothing crash, and what they leave is JSON.
func FuzzRules(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"1.0"},"c":[1,2]}`), "/a", "/a/b", "/c/*", "/a/b")
	f.Add([]byte(`[[1],[2]]`), "/*/0", "/1", "", "/0")
	f.Fuzz(func(t *testing.T, document []byte, include, exclude, decimal, byDefault string) {
		j, err := fingerprint.NewJSON(fingerprint.Rules{
			Include: []string{include}, Exclude: []string{exclude}, Decimals: []string{decimal}, Defaults: map[string]string{byDefault: "1"},
		})
		if err != nil {
			return
		}
		canonical, err := j.Canonical(document)
		if err == nil && !json.Valid(canonical) {
			t.Fatalf("%q", canonical)
		}
	})
}

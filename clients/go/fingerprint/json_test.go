package fingerprint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/idemd/idemd/clients/go/fingerprint"
)

// sumOf is scheme and digest of a document under lenient rules.
func sumOf(t *testing.T, r fingerprint.Rules, document string) string {
	t.Helper()
	f, err := mustJSON(t, r).Sum("", []byte(document))
	if err != nil {
		t.Fatalf("%.100s: %v", document, err)
	}
	return fmt.Sprintf("%s %x", f.Scheme, f.Digest)
}

func problemOf(err error) fingerprint.Problem {
	var refused *fingerprint.RefusedError
	if errors.As(err, &refused) {
		return refused.Problem
	}
	return ""
}

// allEqual and allDiffer hold documents against each other, each with each.
func allEqual(t *testing.T, r fingerprint.Rules, documents ...string) {
	t.Helper()
	for _, d := range documents[1:] {
		if sumOf(t, r, d) != sumOf(t, r, documents[0]) {
			t.Errorf("%s and %s differ", documents[0], d)
		}
	}
}

func allDiffer(t *testing.T, r fingerprint.Rules, documents ...string) {
	t.Helper()
	seen := map[string]string{}
	for _, d := range documents {
		sum := sumOf(t, r, d)
		if other, is := seen[sum]; is {
			t.Errorf("%.100q and %.100q are equal", other, d)
		}
		seen[sum] = d
	}
}

// random makes JSON values, and writes them in ways that mean the same.
type random struct{ *rand.Rand }

func newRandom(t *testing.T) random {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return random{rand.New(rand.NewPCG(seed, 0))}
}

func (r random) value(depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch r.IntN(kinds) {
	case 0:
		return r.text()
	case 1:
		return json.Number(strconv.FormatInt(r.Int64N(1<<53)-1<<52, 10))
	case 2:
		return json.Number(strconv.FormatFloat(r.NormFloat64(), 'g', -1, 64))
	case 3:
		return []any{nil, true, false}[r.IntN(3)]
	case 4:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = r.value(depth - 1)
		}
		return list
	}
	object := map[string]any{}
	for range r.IntN(5) {
		object[r.text()] = r.value(depth - 1)
	}
	return object
}

func (r random) text() string {
	letters := []rune("ab\"\\/\b\n<&é\u2028\u212a\ue000\ufb33\U0001F600\U00010000")
	text := make([]rune, r.IntN(4))
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

// write writes the value with members in any order, and space and escapes as they come.
func (r random) write(v any) string {
	space := []string{"", " ", "\n\t", "\r"}[r.IntN(4)]
	switch v := v.(type) {
	case string:
		return space + r.quote(v) + space
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = r.write(v[i])
		}
		return "[" + space + strings.Join(parts, ",") + "]"
	case map[string]any:
		names := slices.Collect(maps.Keys(v))
		slices.Sort(names)
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		parts := make([]string, len(names))
		for i, name := range names {
			parts[i] = space + r.quote(name) + space + ":" + r.write(v[name])
		}
		return "{" + strings.Join(parts, ",") + space + "}"
	}
	text, _ := json.Marshal(v)
	return space + string(text)
}

func (r random) quote(text string) string {
	var out strings.Builder
	for _, c := range text {
		switch {
		case c > 0xffff && r.IntN(2) == 0:
			fmt.Fprintf(&out, `\u%04X\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		case c < ' ' || c == '"' || c == '\\' || c <= 0xffff && r.IntN(3) == 0:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			out.WriteRune(c)
		}
	}
	return `"` + out.String() + `"`
}

func TestOrderOfMembersSpaceAndEscapesDoNotMatter(t *testing.T) {
	r := newRandom(t)
	j := mustJSON(t, fingerprint.Rules{Strict: false})
	for range 2000 {
		v := r.value(4)
		one, other := r.write(v), r.write(v)
		a, err := j.Canonical([]byte(one))
		b, otherErr := j.Canonical([]byte(other))
		if err != nil || otherErr != nil || !bytes.Equal(a, b) {
			t.Fatalf("%q: %s %v\n%q: %s %v", one, a, err, other, b, otherErr)
		}
	}
}

func TestDocumentsOfDifferentMeaningDiffer(t *testing.T) {
	r := newRandom(t)
	meanings := map[string]string{} // by fingerprint
	for range 5000 {
		v := r.value(3)
		meaning, err := json.Marshal(v) // members in one order; numbers were written in one way
		if err != nil {
			t.Fatal(err)
		}
		sum := sumOf(t, fingerprint.Rules{}, r.write(v))
		if other, is := meanings[sum]; is && other != string(meaning) {
			t.Fatalf("%s and %s are equal", other, meaning)
		}
		meanings[sum] = string(meaning)
	}
	allDiffer(t, fingerprint.Rules{}, `{"id":1}`, `{"id":1,"extra":2}`, `{"m":{"a":{"b":1}}}`, `{"m":{"a":{"b":2}}}`,
		`{"id":"6f9619ff-8b86-d011-b42d-00c04fc964ff"}`, `{"id":"6f9619ff-8b86-d011-b42d-00c04fc964fe"}`,
		`[]`, `{}`, `null`, `""`, `0`, `false`, `[null]`, `[[]]`, `{"a":null}`, `[1,2]`, `[2,1]`, `"1"`, `1`, `"null"`)
}

func TestEveryWayToWriteANumberIsOne(t *testing.T) {
	allEqual(t, fingerprint.Rules{}, `{"amount":1}`, `{"amount":1.0}`, `{"amount":1e0}`, `{"amount":10e-1}`, `{"amount":0.1E+1}`)
	allEqual(t, fingerprint.Rules{}, `0`, `-0`, `0.0`, `0e99`, `-0.00e-5`)
	allDiffer(t, fingerprint.Rules{}, `0`, `1`, `-1`, `10`, `0.1`, `1e-7`, `1.0000000000000002`)
}

func TestNumbersThatADoubleCanNotHoldEqualNothing(t *testing.T) {
	numbers := []string{
		"9007199254740991", "9007199254740992", "9007199254740993", "9007199254740994", "-6221876622438591526", "-6221876622438591000",
		"1e400", "1e500", "-1e400", "null", "1.7976931348623157e308", "1e-400", "0", "0.1", "0.10000000000000001", "0.1000000000000000055",
		strings.Repeat("9", 1000), strings.Repeat("9", 1000) + ".0", "1e" + strings.Repeat("9", 100), "1e-" + strings.Repeat("9", 100),
	}
	var documents []string
	for _, n := range numbers {
		documents = append(documents, `{"v":`+n+`}`)
	}
	allDiffer(t, fingerprint.Rules{}, documents...)
}

func TestWhatHasNoCanonicalFormIsHashedRawAndEqualsNothing(t *testing.T) {
	pairs := []struct{ bad, clean string }{
		{`{"amount":1,"amount":2}`, `{"amount":2}`}, {`{"amount":1,"amount":2}`, `{"amount":1}`}, {`{"a":1,"\u0061":1}`, `{"a":1}`},
		{`{"k":"\uD800"}`, `{"k":"` + "\ufffd" + `"}`}, {`{"k":"\uD800X"}`, `{"k":"?X"}`}, {`{"\uDC00":1}`, `{"` + "\ufffd" + `":1}`},
		{"{\"k\":\"\xff\"}", `{"k":"` + "\ufffd" + `"}`}, {`{}{}`, `{}`}, {"\ufeff{}", `{}`}, {`[1,]`, `[1]`}, {``, `""`},
	}
	for _, p := range pairs {
		f, err := mustJSON(t, fingerprint.Rules{}).Sum("", []byte(p.bad))
		if err != nil || f.Scheme != fingerprint.SchemeJSONRaw {
			t.Errorf("%q: %s %v", p.bad, f.Scheme, err)
		}
		allDiffer(t, fingerprint.Rules{}, p.bad, p.clean)
		if _, err := mustJSON(t, fingerprint.Rules{Strict: true}).Sum("", []byte(p.bad)); problemOf(err) == "" {
			t.Errorf("%q is not refused by strict rules: %v", p.bad, err)
		}
	}
	// Not even of the same bytes: the schemes' digests have nothing in common.
	raw, err := mustJSON(t, fingerprint.Rules{Include: []string{"/none"}}).Sum("", []byte(`{}`))
	if canonical, _ := mustJSON(t, fingerprint.Rules{}).Sum("", []byte(`{}`)); err != nil || bytes.Equal(raw.Digest, canonical.Digest) {
		t.Errorf("a raw digest is a canonical one: %v", err)
	}
}

func TestNamesThatDifferInCaseAreTwoAndRefusedByStrictRules(t *testing.T) {
	allDiffer(t, fingerprint.Rules{}, `{"amount":1,"Amount":100}`, `{"amount":1}`, `{"Amount":100}`, `{"AMOUNT":1,"amount":100}`)
	for _, twins := range []string{`{"amount":1,"Amount":100}`, `[{"x":{"K":1,"\u212a":2}}]`, `{"straße":1,"STRASSE":2,"STRAßE":3}`} {
		if _, err := mustJSON(t, fingerprint.Rules{Strict: true}).Sum("", []byte(twins)); problemOf(err) != fingerprint.CaseTwins {
			t.Errorf("%s: %v", twins, err)
		}
	}
}

func TestCharactersThatLookAlikeDiffer(t *testing.T) {
	for _, pair := range [][2]string{{"\u00e9", "e\u0301"}, {"\u212b", "\u00c5"}, {"\u212a", "K"}, {"a", "\u0430"}, {"\ufb01", "fi"}} {
		allDiffer(t, fingerprint.Rules{}, `{"n":"`+pair[0]+`"}`, `{"n":"`+pair[1]+`"}`, `{"`+pair[0]+`":1}`, `{"`+pair[1]+`":1}`)
	}
}

func TestHostileDocumentsAreHashedWholeOrRefused(t *testing.T) {
	hostile := map[string]fingerprint.Problem{
		strings.Repeat("[", 100_000):                                          fingerprint.TooDeep,
		strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000):           fingerprint.TooDeep,
		strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000): fingerprint.TooDeep,
		`{"x":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`:   fingerprint.TooDeep,
		`"` + strings.Repeat("a", fingerprint.MaxCanonicalBytes) + `"`:        fingerprint.TooLarge,
		wide(1_000_000)[:fingerprint.MaxBytes]:                                fingerprint.TooLarge,
		wide(50_000) + "x":                                                    fingerprint.InvalidSyntax,
		"1" + strings.Repeat("0", 500_000) + "e-500000":                       "",
	}
	for document, problem := range hostile {
		_, err := mustJSON(t, fingerprint.Rules{Strict: true, Exclude: []string{"/x"}}).Sum("", []byte(document))
		if problemOf(err) != problem {
			t.Errorf("%.40s...: %v, want %s", document, err, problem)
		}
		// Never a prefix: what comes last counts.
		allDiffer(t, fingerprint.Rules{}, document, document[:len(document)-1]+"~", document[:len(document)-1])
	}
	for _, strict := range []bool{false, true} {
		_, err := mustJSON(t, fingerprint.Rules{Strict: strict}).Sum("", make([]byte, fingerprint.MaxBytes+1))
		if problemOf(err) != fingerprint.TooLarge {
			t.Errorf("strict %v: a byte too many: %v", strict, err)
		}
	}
}

// wide is an object with n members in the wrong order.
func wide(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = `"` + strconv.Itoa(1e9-i) + `":1`
	}
	return "{" + strings.Join(members, ",") + "}"
}

func TestAnErrorTellsWhereAndQuotesNothing(t *testing.T) {
	for document, offset := range map[string]int64{
		`{"secret":1,"secret":2}`: 12, `{"a":["secret` + "\xff" + `"]}`: 13, `{"secret":1e400}`: 10, `["secret\uD800secret"]`: 8,
		`{"secret" 1}`: 10, `{"secret":1,"SECRET":2}`: 12, `{"secret":tru}`: 13,
	} {
		_, err := mustJSON(t, fingerprint.Rules{Strict: true}).Sum("", []byte(document))
		var refused *fingerprint.RefusedError
		if !errors.As(err, &refused) || refused.Offset != offset {
			t.Errorf("%q: %v, want byte %d", document, err, offset)
		}
		if strings.Contains(strings.ToLower(fmt.Sprint(err)), "secret") {
			t.Errorf("%v quotes the document", err)
		}
	}
}

func TestOneValueServesManyGoroutines(t *testing.T) {
	j := mustJSON(t, fingerprint.Rules{Include: []string{"/0/a", "/*/b"}, Decimals: []string{"/*/b"}, Defaults: map[string]string{"/0/a": "1"}})
	want, err := j.Sum("u", []byte(`[{"a":2,"b":"1.0"}]`))
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() {
			if got, err := j.Sum("u", []byte(`[{"b":1,"a":2.0,"c":3}]`)); err != nil || !bytes.Equal(got.Digest, want.Digest) {
				t.Errorf("%v %v", got, err)
			}
		})
	}
	group.Wait()
}

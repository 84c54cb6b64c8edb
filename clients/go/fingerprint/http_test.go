package fingerprint_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
)

func httpSum(t *testing.T, rules fingerprint.HTTPRules, r fingerprint.Request) string {
	t.Helper()
	h, err := fingerprint.NewHTTP(rules)
	if err != nil {
		t.Fatal(err)
	}
	f, err := h.Sum("", r)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %x", f.Scheme, f.Digest)
}

// request is one that arrives at a server.
func request(method, target, contentType, body string) fingerprint.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	q, err := fingerprint.ReadRequest(r)
	if err != nil {
		panic(err)
	}
	return q
}

func TestEveryPartOfARequestCounts(t *testing.T) {
	rules := fingerprint.HTTPRules{Headers: []string{"Accept-Version"}}
	with := func(change func(*fingerprint.Request)) fingerprint.Request {
		q := request("POST", "/orders/1/cancel", "application/json", `{"a":1}`)
		q.Header.Set("Accept-Version", "1")
		change(&q)
		return q
	}
	seen := map[string]string{}
	for name, q := range map[string]fingerprint.Request{
		"itself":            with(func(*fingerprint.Request) {}),
		"method":            with(func(q *fingerprint.Request) { q.Method = "PUT" }),
		"route":             with(func(q *fingerprint.Request) { q.Pattern = "/orders/{id}/cancel" }),
		"another route":     with(func(q *fingerprint.Request) { q.Pattern = "/orders/{id}/{verb}" }),
		"path":              with(func(q *fingerprint.Request) { q.Path = "/orders/2/cancel" }),
		"a slash in a path": with(func(q *fingerprint.Request) { q.Path = "/orders/1%2Fcancel" }),
		"query":             with(func(q *fingerprint.Request) { q.Query = "a=1" }),
		"value of a query":  with(func(q *fingerprint.Request) { q.Query = "a=2" }),
		"a second value":    with(func(q *fingerprint.Request) { q.Query = "a=1&a=2" }),
		"a broken query":    with(func(q *fingerprint.Request) { q.Query = "a=1;a=2" }),
		"header":            with(func(q *fingerprint.Request) { q.Header.Set("Accept-Version", "2") }),
		"no header":         with(func(q *fingerprint.Request) { q.Header.Del("Accept-Version") }),
		"empty header":      with(func(q *fingerprint.Request) { q.Header.Set("Accept-Version", "") }),
		"body":              with(func(q *fingerprint.Request) { q.Body = []byte(`{"a":2}`) }),
		"no body":           with(func(q *fingerprint.Request) { q.Body = nil }),
		"content type":      with(func(q *fingerprint.Request) { q.Header.Set("Content-Type", "text/plain") }),
		"kind of JSON":      with(func(q *fingerprint.Request) { q.Header.Set("Content-Type", "application/merge-patch+json") }),
		"as a form":         with(func(q *fingerprint.Request) { q.Header.Set("Content-Type", "application/x-www-form-urlencoded") }),
		"a broken form": with(func(q *fingerprint.Request) {
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			q.Body = []byte(`%`)
		}),
		"broken JSON": with(func(q *fingerprint.Request) { q.Body = []byte(`{"a":1,"a":1}`) }),
	} {
		sum := httpSum(t, rules, q)
		if other, is := seen[sum]; is {
			t.Errorf("%s does not count beside %s", name, other)
		}
		seen[sum] = name
	}
}

func TestTheSameKeyForAnotherPathValueIsAMismatch(t *testing.T) {
	sums := map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/cancel", func(_ http.ResponseWriter, r *http.Request) {
		q, err := fingerprint.ReadRequest(r)
		if err != nil || q.Pattern == "" {
			t.Errorf("%+v %v", q, err)
		}
		sums[r.PathValue("id")] = httpSum(t, fingerprint.HTTPRules{}, q)
	})
	for _, id := range []string{"1", "2", "1%2F2", "%31"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/"+id+"/cancel", nil))
		if id == "2" && sums["1"] == sums["2"] {
			t.Error("orders 1 and 2 have one fingerprint")
		}
	}
	if len(sums) != 3 {
		t.Errorf("%d different values arrived", len(sums))
	}
	before := sums["1"]
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders/%31/cancel", nil))
	if sums["1"] != before {
		t.Error("an escape that says the same changes it")
	}
}

func TestWhatMeansTheSameInARequestIsEqual(t *testing.T) {
	type pair struct{ one, other fingerprint.Request }
	pattern := func(p string) fingerprint.Request {
		q := request("POST", "/orders/1/files/a/b", "", "")
		q.Pattern = p
		return q
	}
	for name, p := range map[string]pair{
		"order of the query": {request("POST", "/o?b=2&a=1&a=0", "", ""), request("POST", "/o?a=1&b=2&a=0", "", "")},
		"escapes":            {request("POST", "/o%31?a=%31+%20", "", ""), request("POST", "/o1?a=1%20+", "", "")},
		"JSON":               {request("POST", "/o", "application/json", `{"a":1,"b":2}`), request("POST", "/o", "Application/JSON ; charset=utf-8", `{ "b":2.0, "a":1 }`)},
		"order of a form":    {request("POST", "/o", "application/x-www-form-urlencoded", "b=2&a=1"), request("POST", "/o", "application/x-www-form-urlencoded; charset=utf-8", "a=1&b=2")},
		"no body":            {request("POST", "/o", "", ""), request("POST", "/o", "application/json", "")},
		"names of wildcards": {pattern("POST /orders/{id}/files/{path...}"), pattern("POST /orders/{order}/files/{rest...}")},
		"headers not named": {request("POST", "/o", "", ""), func() fingerprint.Request {
			q := request("POST", "/o", "", "")
			q.Header.Set("Traceparent", "x")
			return q
		}()},
		"an empty query part": {request("POST", "/o?a=1", "", ""), request("POST", "/o?&a=1&", "", "")},
	} {
		if httpSum(t, fingerprint.HTTPRules{}, p.one) != httpSum(t, fingerprint.HTTPRules{}, p.other) {
			t.Errorf("%s matters", name)
		}
	}
	rules := fingerprint.HTTPRules{Rules: fingerprint.Rules{Exclude: []string{"/at"}}, ExcludeQuery: []string{"trace"}}
	one, other := request("POST", "/o?trace=1", "application/json", `{"at":1,"b":2}`), request("POST", "/o", "application/json", `{"b":2}`)
	if httpSum(t, rules, one) != httpSum(t, rules, other) {
		t.Error("what is excluded matters")
	}
}

func TestStrictRulesRefuseARequestThatCanNotBeRead(t *testing.T) {
	strict, err := fingerprint.NewHTTP(fingerprint.HTTPRules{Rules: fingerprint.Rules{Strict: true}})
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]fingerprint.Request{
		"query": request("POST", "/o?a=1;b=2", "", ""), "form": request("POST", "/o", "application/x-www-form-urlencoded", "a=%"),
		"JSON": request("POST", "/o", "application/json", `{"a":1,"a":1}`), "path": {Method: "POST", Path: "/%zz"},
	} {
		if _, err := strict.Sum("", q); problemOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	var lenient fingerprint.HTTP
	if _, err := lenient.Sum("", fingerprint.Request{Path: "/%zz"}); problemOf(err) != fingerprint.InvalidSyntax {
		t.Errorf("a path that can't be read: %v", err)
	}
}

// endless counts what is read of it.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func TestALargeBodyIsRefusedBeforeAnythingIsHashed(t *testing.T) {
	for name, length := range map[string]int64{"with its length": 64 << 20, "without": -1} {
		body := &endless{}
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.ContentLength = length
		if _, err := fingerprint.ReadRequest(r); problemOf(err) != fingerprint.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if most := int64(fingerprint.MaxBytes + 1); body.read > most || length > 0 && body.read > 0 {
			t.Errorf("%s: %d bytes were read", name, body.read)
		}
	}
	for size, want := range map[int]fingerprint.Problem{fingerprint.MaxBytes: "", fingerprint.MaxBytes + 1: fingerprint.TooLarge} {
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(bytes.NewReader(make([]byte, size))))
		if q, err := fingerprint.ReadRequest(r); problemOf(err) != want || err == nil && len(q.Body) != size {
			t.Errorf("%d bytes: %d, %v", size, len(q.Body), err)
		}
		var h fingerprint.HTTP
		if _, err := h.Sum("", fingerprint.Request{Body: make([]byte, size)}); problemOf(err) != want {
			t.Errorf("Sum of %d bytes: %v", size, err)
		}
	}
}

func TestTheHandlerGetsItsBodyWhole(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
	q, err := fingerprint.ReadRequest(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "changed/later")
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != "body" || r.Body.Close() != nil || q.Header.Get("Content-Type") != "" {
		t.Errorf("%q %v, %+v", body, err, q)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestABodyThatBreaksOffHasNoFingerprint(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(`{"a":1}`), broken{}))
	if _, err := fingerprint.ReadRequest(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
}

func TestThePathIsTheOneThatWasAskedForWhateverTheServerMakesOfIt(t *testing.T) {
	var read []fingerprint.Request
	mux := http.NewServeMux()
	for _, prefix := range []string{"/charges", "/refunds"} {
		inner := http.NewServeMux()
		inner.HandleFunc("POST /create", func(_ http.ResponseWriter, r *http.Request) {
			q, err := fingerprint.ReadRequest(r)
			if err != nil {
				t.Error(err)
			}
			read = append(read, q)
		})
		mux.Handle(prefix+"/", http.StripPrefix(prefix, inner))
	}
	for _, path := range []string{"/charges/create?a=1", "/refunds/create?a=1"} {
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	}
	if len(read) != 2 || read[0].Path != "/charges/create" || read[1].Path != "/refunds/create" || read[0].Query != "a=1" {
		t.Errorf("read %+v", read)
	}
}

func TestHostsAreToldApartWhereTheyCount(t *testing.T) {
	at := func(host string, headers ...string) idem.Fingerprint {
		h, err := fingerprint.NewHTTP(fingerprint.HTTPRules{Headers: headers})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://"+host+"/pay", nil)
		q, err := fingerprint.ReadRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := h.Sum("", q)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if bytes.Equal(at("a.example", "Host").Digest, at("b.example", "Host").Digest) {
		t.Error("two hosts have one fingerprint")
	}
	if !bytes.Equal(at("a.example").Digest, at("b.example").Digest) {
		t.Error("a host counts that nobody named")
	}
}

func TestALargeFormCostsLittleMemory(t *testing.T) {
	q := fingerprint.Request{Method: "POST", Path: "/", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}
	for name, fill := range map[string]string{"names alone": "a&", "pairs": "a=&"} {
		q.Body = bytes.Repeat([]byte(fill), fingerprint.MaxBytes/len(fill))
		per := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if sum, err := new(fingerprint.HTTP).Sum("", q); err != nil || sum.Scheme != fingerprint.SchemeHTTPRaw {
					b.Error(sum.Scheme, err)
				}
			}
		}).AllocedBytesPerOp()
		if per > 5*fingerprint.MaxBytes {
			t.Errorf("%s: 8 MiB of a form take %d MiB", name, per>>20)
		}
	}
}

func TestRulesAreReadWhenTheyAreCompiled(t *testing.T) {
	excluded := []string{"at"}
	h, err := fingerprint.NewHTTP(fingerprint.HTTPRules{ExcludeQuery: excluded})
	if err != nil {
		t.Fatal(err)
	}
	q := fingerprint.Request{Method: "POST", Path: "/", Query: "at=1"}
	before, _ := h.Sum("", q)
	excluded[0] = "other"
	after, _ := h.Sum("", q)
	if !bytes.Equal(before.Digest, after.Digest) {
		t.Error("changing the configuration changes the fingerprint")
	}
}

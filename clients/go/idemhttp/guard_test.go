package idemhttp_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"google.golang.org/protobuf/proto"
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

const receiptOfOne = `{"order":1,"of":{"n":1}}`

func TestARequestRunsOnceAndItsAnswerIsReplayed(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	first, again := s.post(t, "k"), s.post(t, "k")
	wantAnswer(t, first, 201, receiptOfOne, false)
	wantAnswer(t, again, 201, receiptOfOne, true)
	s.MustHaveRun(t, 1)
	for _, a := range []*answer{first, again} {
		if a.header.Get("Content-Type") != "application/json" || a.header.Get("Location") != "/orders/1" || a.reason() != "" {
			t.Errorf("headers: %v", a.header)
		}
		at, err := time.Parse(time.RFC3339, a.header.Get(idemhttp.ExpiresHeader))
		if err != nil || time.Until(at) < 6*24*time.Hour {
			t.Errorf("it does not say until when it is remembered: %v", a.header)
		}
	}
	if first.header.Get("X-Trace") == "" || again.header.Get("X-Trace") != "" {
		t.Error("a header that is not on the list is missing from the first answer, or replayed")
	}
	if first.header.Get(idemhttp.ExpiresHeader) != again.header.Get(idemhttp.ExpiresHeader) {
		t.Error("the two answers are remembered until different times")
	}
	s.wantEndings(t, idemhttp.Executed, idemhttp.Replayed)
}

func TestAKeyInQuotesIsTheBareOneAndOthersAreOthers(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	for i, same := range [][]string{{"k-1", `"k-1"`}, {`a\b`, `"a\\b"`}, {"K-1"}, {"k-1;a=1"}} {
		s.Ran.Store(0)
		for j, key := range same {
			wantAnswer(t, s.post(t, key), 201, receiptOfOne, j > 0)
		}
		s.MustHaveRun(t, 1)
		if s.Daemon.Records() != i+1 {
			t.Errorf("%q: %d records", same, s.Daemon.Records())
		}
	}
}

func TestASuspiciousKeyIsRefusedAndTakesNothing(t *testing.T) {
	for _, need := range []idemhttp.Need{idemhttp.Required, idemhttp.Optional} {
		s := open(t, idemhttp.Config{Need: need}, idem.Options{})
		for _, keys := range [][]string{
			{""}, {" "}, {"\t"}, {"k", "k"}, {"k", "other"}, {"k", ""}, {"k, k"}, {"k,k"}, {`"k", "k"`}, {`"k","k"`}, {`"k,k"`}, {`"k"`, "k"}, {"a b"}, {`"a b"`}, {`""`}, {`"`}, {`"k`}, {`k"`},
			{`"k";a=1`}, {`"a\b"`}, {`"a\"b"`}, {`"k\"`}, {"????-1"}, {"zahlung-\u00e4"}, {"\u043f\u043b"}, {strings.Repeat("k", 256)}, {"a\u007f"},
		} {
			r := s.request(t, http.MethodPost, "/orders", `{"n":1}`)
			r.Header[idemhttp.KeyHeader] = keys
			a := s.send(t, r)
			if a.err != nil { // what Go's client does not send at all
				if !strings.Contains(a.err.Error(), "invalid header field") {
					t.Errorf("%q: %v", keys, a.err)
				}
				continue
			}
			wantRefusal(t, a, 400, idemhttp.ReasonKeyInvalid, false)
			if long := strings.Join(keys, ""); len(strings.TrimSpace(long)) > 3 && strings.Contains(a.body, long) {
				t.Errorf("the answer quotes the key: %s", a.body)
			}
		}
		s.MustHaveRun(t, 0)
		if s.Daemon.Calls() != 0 {
			t.Error("something was reserved")
		}
	}
}

func TestWithoutAKeyANeedDecides(t *testing.T) {
	for need, ran := range map[idemhttp.Need]int32{idemhttp.Required: 0, idemhttp.Optional: 2, idemhttp.Off: 2} {
		s := open(t, idemhttp.Config{Need: need}, idem.Options{})
		for range 2 {
			a := s.send(t, s.request(t, http.MethodPost, "/orders", `{"n":1}`))
			if need == idemhttp.Required {
				wantRefusal(t, a, 400, idemhttp.ReasonKeyRequired, false)
				continue
			}
			wantAnswer(t, a, 201, receiptOfOne, false)
		}
		s.MustHaveRun(t, ran)
		if s.Daemon.Calls() != 0 {
			t.Error("something was reserved")
		}
		switch need {
		case idemhttp.Required:
			s.wantEndings(t, idemhttp.Refused, idemhttp.Refused)
		case idemhttp.Optional:
			s.wantEndings(t, idemhttp.Unguarded, idemhttp.Unguarded)
		default:
			s.wantEndings(t)
		}
	}
}

// A preflight is an OPTIONS, and passes like every method that is not on the list.
func TestOnlyTheMethodsOnTheListAreGuarded(t *testing.T) {
	for _, c := range []struct{ listed, guarded []string }{
		{nil, []string{"POST", "PATCH"}}, {[]string{"PUT", "DELETE"}, []string{"PUT", "DELETE"}},
	} {
		s := open(t, idemhttp.Config{Methods: c.listed}, idem.Options{})
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
			s.Ran.Store(0)
			for range 2 {
				if a := s.send(t, s.request(t, method, "/orders", `{"n":1}`, method)); a.status != 201 {
					t.Errorf("%s: answered %d", method, a.status)
				}
			}
			want := int32(2)
			for _, g := range c.guarded {
				if g == method {
					want = 1
				}
			}
			s.MustHaveRun(t, want)
		}
	}
}

func TestABodyOverTheLimitIsRefusedBeforeAnythingIsHashed(t *testing.T) {
	const limit = 64
	s := open(t, idemhttp.Config{MaxBodyBytes: limit, Validate: func(*http.Request) error { return idemhttp.Refuse(418, "asked") }}, idem.Options{})
	whole := open(t, idemhttp.Config{}, idem.Options{})
	for _, chunked := range []bool{false, true} {
		for _, c := range []struct {
			on     *shop
			size   int
			status int
		}{{s, limit, 418}, {s, limit + 1, 413}, {s, 1 << 20, 413}, {whole, fingerprint.MaxBytes, 201}, {whole, fingerprint.MaxBytes + 1, 413}, {whole, 64 << 20, 413}} {
			r := c.on.request(t, http.MethodPost, "/orders", strings.Repeat("1", c.size), "k")
			if chunked {
				r.ContentLength, r.GetBody = -1, nil
				r.Body = io.NopCloser(io.MultiReader(r.Body))
			}
			a := c.on.send(t, r)
			switch {
			case a.err != nil && c.status == 413: // the server hung up while it was still being sent
			case c.status == 413:
				wantRefusal(t, a, 413, idemhttp.ReasonRequestTooLarge, false)
			case a.status != c.status:
				t.Errorf("%d bytes, chunked %v: answered %d", c.size, chunked, a.status)
			}
		}
	}
	if s.Daemon.Records() != 0 || whole.Daemon.Records() != 1 {
		t.Errorf("%d and %d records", s.Daemon.Records(), whole.Daemon.Records())
	}
}

func TestTheSameKeyForAnotherRequestIsRefused(t *testing.T) {
	for profile, status := range map[idemhttp.Profile]int{idemhttp.ProfileDefault: 409, idemhttp.ProfileIETF: 422} {
		s := open(t, idemhttp.Config{Profile: profile, Methods: []string{"POST", "PUT"}}, idem.Options{})
		wantAnswer(t, s.send(t, s.request(t, "POST", "/orders/1/cancel?a=1&b=2", `{"a":1,"b":{"c":2,"d":3}}`, "k")), 201, `{"order":1,"of":{"a":1,"b":{"c":2,"d":3}}}`, false)
		for _, other := range [][3]string{
			{"POST", "/orders/2/cancel?a=1&b=2", `{"a":1,"b":{"c":2,"d":3}}`},
			{"PUT", "/orders/1/cancel?a=1&b=2", `{"a":1,"b":{"c":2,"d":3}}`},
			{"POST", "/orders/1/cancel?a=1&b=3", `{"a":1,"b":{"c":2,"d":3}}`},
			{"POST", "/orders/1/cancel?a=1&b=2", `{"a":1,"b":{"c":2,"d":4}}`},
			{"POST", "/orders/1/cancel?a=1&b=2", ``},
		} {
			wantRefusal(t, s.send(t, s.request(t, other[0], other[1], other[2], "k")), status, idemhttp.ReasonFingerprintMismatch, false)
		}
		for _, same := range []string{"{ \"b\":{\"d\":3,\"c\":2.0},\n\"a\":1 }", `{"a":1,"b":{"c":2,"d":3}}`} {
			if a := s.send(t, s.request(t, "POST", "/orders/1/cancel?b=2&a=1", same, "k")); !a.replayed() {
				t.Errorf("%s: answered %d %s", same, a.status, a.body)
			}
		}
		s.MustHaveRun(t, 1)
	}
}

func TestTheRouteCountsBehindAMuxAndNamesOfWildcardsDoNot(t *testing.T) {
	s := newShop(t, idemhttp.Config{}, idem.Options{})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/orders/{id}", s.guard.Middleware(s))
	mux.Handle("POST /v2/orders/{order}", s.guard.Middleware(s)) // the same guard, another route
	s.serve(t, mux)
	wantAnswer(t, s.send(t, s.request(t, "POST", "/v1/orders/1", `1`, "k")), 201, `{"order":1,"of":1}`, false)
	wantRefusal(t, s.send(t, s.request(t, "POST", "/v2/orders/1", `1`, "k")), 409, idemhttp.ReasonFingerprintMismatch, false)
	renamed := http.NewServeMux()
	renamed.Handle("POST /v1/orders/{number}", s.guard.Middleware(s))
	s.serve(t, renamed)
	wantAnswer(t, s.send(t, s.request(t, "POST", "/v1/orders/1", `1`, "k")), 201, `{"order":1,"of":1}`, true)
}

// The path is the same, and so are its wildcards' values: nothing but the pattern tells the
// two apart.
func TestTheSamePathByAnotherRouteIsAnotherRequest(t *testing.T) {
	s := newShop(t, idemhttp.Config{}, idem.Options{})
	for i, pattern := range []string{"POST /orders/{id}", "POST /orders/{rest...}", "POST /orders/1", "/orders/{id}", "POST /orders/"} {
		mux := http.NewServeMux()
		mux.Handle(pattern, s.guard.Middleware(s))
		s.serve(t, mux)
		a := s.send(t, s.request(t, "POST", "/orders/1", `1`, "k"))
		if i == 0 {
			wantAnswer(t, a, 201, `{"order":1,"of":1}`, false)
			continue
		}
		wantRefusal(t, a, 409, idemhttp.ReasonFingerprintMismatch, false)
	}
}

func TestOnlyWhatCountsIsCompared(t *testing.T) {
	s := open(t, idemhttp.Config{Fingerprint: fingerprint.HTTPRules{
		Rules: fingerprint.Rules{Exclude: []string{"/at"}}, Headers: []string{"Api-Version"}, ExcludeQuery: []string{"trace"},
	}}, idem.Options{})
	send := func(path, body, version string) *answer {
		r := s.request(t, "POST", path, body, "k")
		r.Header.Set("Api-Version", version)
		return s.send(t, r)
	}
	_ = send("/orders?trace=1", `{"n":1,"at":1}`, "1")
	if a := send("/orders?trace=2", `{"n":1,"at":2}`, "1"); !a.replayed() {
		t.Errorf("answered %d %s", a.status, a.body)
	}
	wantRefusal(t, send("/orders", `{"n":2}`, "1"), 409, idemhttp.ReasonFingerprintMismatch, false)
	wantRefusal(t, send("/orders", `{"n":1}`, "2"), 409, idemhttp.ReasonFingerprintMismatch, false)
}

func TestWhatAHandlerDoesToItsRequestChangesNothing(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(idemhttp.KeyHeader, "other")
		r.URL = &url.URL{Path: "/elsewhere"}
		r.Method = "GET"
		receipt(w, r)
	}
	for i := range 2 {
		wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, i > 0)
	}
	if s.Daemon.Records() != 1 {
		t.Errorf("%d records", s.Daemon.Records())
	}
}

func TestARequestThatIsRefusedByValidateTakesNoKey(t *testing.T) {
	s := open(t, idemhttp.Config{Validate: func(r *http.Request) error {
		body, err := io.ReadAll(r.Body)
		r.Header.Set("Api-Version", "7") // nobody is bound by what it does to its request
		switch {
		case err != nil:
			return err
		case string(body) == `{"n":-1}`:
			return fmt.Errorf("n is less than nothing")
		case string(body) == `{"n":-2}`:
			return fmt.Errorf("wrapped: %w", idemhttp.Refuse(422, "n is much less than nothing"))
		}
		return nil
	}}, idem.Options{})
	a := s.send(t, s.request(t, "POST", "/orders", `{"n":-1}`, "k"))
	if wantRefusal(t, a, 400, "", true); !strings.Contains(a.body, "less than nothing") {
		t.Errorf("it does not say why: %s", a.body)
	}
	wantRefusal(t, s.send(t, s.request(t, "POST", "/orders", `{"n":-2}`, "k")), 422, "", true)
	if s.Daemon.Calls() != 0 {
		t.Error("something was reserved")
	}
	wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, false)
	s.wantEndings(t, idemhttp.Refused, idemhttp.Refused, idemhttp.Executed)
}

func TestTenantsAndSubjectsShareNoAnswer(t *testing.T) {
	s := open(t, idemhttp.Config{Tenant: from("X-Tenant"), Subject: from("X-User")}, idem.Options{})
	as := func(tenant, user, key string) *answer {
		r := s.request(t, "POST", "/orders", `{"n":1}`, key)
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-User", user)
		return s.send(t, r)
	}
	for _, tenant := range []string{"acme", "globex", "a", "a.b"} {
		wantAnswer(t, as(tenant, "ann", "k"), 201, receiptOfOne, false)
	}
	wantAnswer(t, as("a", "ann", "b.k"), 201, receiptOfOne, false) // addresses are not joined
	wantRefusal(t, as("acme", "bob", "k"), 409, idemhttp.ReasonFingerprintMismatch, false)
	wantAnswer(t, as("acme", "ann", "k"), 201, receiptOfOne, true)
	wantRefusal(t, s.post(t, "k2"), 401, "", true)
	s.MustHaveRun(t, 5)
}

func TestAHandlerHasItsGrant(t *testing.T) {
	s := open(t, idemhttp.Config{Need: idemhttp.Optional, PolicyVersion: "tariff-7"}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		g, guarded := idem.GrantFrom(r.Context())
		if !guarded {
			idemhttp.Unknown(r) // nobody listens
			return
		}
		if err := g.Checkpoint(r.Context(), []byte("half")); err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintln(w, g.DeriveKey("charge"), g.PolicyVersion, g.Key, g.Attempt)
	}
	want := fmt.Sprintln(idem.DeriveKey("acme", "default", "k", "charge"), "tariff-7", "k", 1)
	wantAnswer(t, s.post(t, "k"), 200, want, false)
	if is := s.Daemon.Record("acme", "", "k"); string(is.GetCheckpoint()) != "half" {
		t.Errorf("stored is %v", is)
	}
	wantAnswer(t, s.send(t, s.request(t, "POST", "/orders", "")), 200, "", false)
}

func TestOneGuardServesManyGoroutinesAndHandlers(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			body := fmt.Sprintf(`{"n":%d}`, i/2) // two of each
			a := s.send(t, s.request(t, "POST", "/orders", body, fmt.Sprint("k", i/2)))
			if a.status != 201 || a.body != `{"order":1,"of":`+body+`}` {
				t.Errorf("%d: answered %d %s", i, a.status, a.body)
			}
		})
	}
	all.Wait()
	s.MustHaveRun(t, 32)
}

func TestWhatIsWrongWithAConfigurationIsToldAtOnce(t *testing.T) {
	client := idem.New(nil, idem.Options{})
	for want, c := range map[string]idemhttp.Config{
		"no need 7":               {Need: 7},
		"no profile -1":           {Profile: -1},
		"no mode 3":               {Mode: 3},
		"no methods":              {Methods: []string{}},
		`"post" is no method`:     {Methods: []string{"post"}},
		`"CONNECT" is`:            {Methods: []string{"CONNECT"}},
		"lease is 1ms":            {Lease: time.Millisecond},
		"retention is 1ms":        {Retention: time.Millisecond},
		"policy version":          {PolicyVersion: strings.Repeat("v", 65)},
		`namespace "A"`:           {Namespace: "A"},
		"largest body is":         {MaxBodyBytes: fingerprint.MaxBytes + 1},
		"body is -1":              {MaxBodyBytes: -1},
		"status path":             {StatusPath: "status"},
		`path "//evil.test/"`:     {StatusPath: "//evil.test/"},
		`path "/\\evil.test/"`:    {StatusPath: `/\evil.test/`},
		`path "/s?x=/"`:           {StatusPath: "/s?x=/"},
		`path "/s#/"`:             {StatusPath: "/s#/"},
		`path "/s/../t/"`:         {StatusPath: "/s/../t/"},
		`path "/s//t/"`:           {StatusPath: "/s//t/"},
		`path "/{key}/"`:          {StatusPath: "/{key}/"},
		`path "/s"`:               {StatusPath: "/s"},
		`"a b" can't be`:          {Fingerprint: fingerprint.HTTPRules{Headers: []string{"a b"}}},
		`"te" can't be`:           {Fingerprint: fingerprint.HTTPRules{Headers: []string{"te"}}},
		`"content-length" can't`:  {Fingerprint: fingerprint.HTTPRules{Headers: []string{"content-length"}}},
		`"Idempotency-Key" can't`: {Fingerprint: fingerprint.HTTPRules{Headers: []string{"Idempotency-Key"}}},
		"settle time is -1ns":     {Settle: -1},
		"settle time is 96":       {Settle: 401 * 24 * time.Hour},
		"least time left is 1h":   {MinRemaining: time.Hour + 1},
		"wait is 1h":              {Wait: time.Hour + 1},
		"16 bytes":                {StatusSecret: make([]byte, 15)},
		"needs a status secret":   {StatusPath: "/status/", Subject: func(*http.Request) (string, error) { return "", nil }},
		"Content-Length can't":    {Headers: []string{"content-length"}},
		`"a b" is no header`:      {Headers: []string{"a b"}},
		"the empty name":          {Fingerprint: fingerprint.HTTPRules{Headers: []string{""}}},
		`path "x"`:                {Fingerprint: fingerprint.HTTPRules{Rules: fingerprint.Rules{Exclude: []string{"x"}}}},
	} {
		if _, err := idemhttp.New(client, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := idemhttp.New(nil, idemhttp.Config{}); err == nil {
		t.Error("there is no client, and nobody says so")
	}
	if _, err := idemhttp.New(client, idemhttp.Config{Need: 7, Mode: 3}); !strings.Contains(err.Error(), "need") || !strings.Contains(err.Error(), "mode") {
		t.Errorf("not all is told: %v", err)
	}
}

// Building has no side effects: two guards of one configuration share the record.
func TestTwoGuardsOfOneConfigurationGuardTheSame(t *testing.T) {
	s := newShop(t, idemhttp.Config{Headers: []string{"location", "etag"}}, idem.Options{})
	config := idemhttp.Config{Headers: []string{"location", "etag"}}
	for i := range 2 {
		other, err := idemhttp.New(s.Client, config)
		if err != nil {
			t.Fatal(err)
		}
		if s.Daemon.Records() != i || config.Headers[0] != "location" {
			t.Error("building has done something")
		}
		s.serve(t, other.Middleware(s))
		wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, i > 0)
	}
	s.MustHaveRun(t, 1)
}

// Clients and proxies wait for 30 s, usually.
func TestARequestWaitsNoLongerThanItsCallerUsuallyDoes(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: idemhttp.DefaultWait, 40 * time.Second: 40 * time.Second, -1: 0} {
		s := open(t, idemhttp.Config{Wait: wait}, idem.Options{})
		asks := make(chan time.Duration, 2)
		s.Daemon.Fault(func(m proto.Message) error {
			if r, is := m.(*idemdv1.ReserveRequest); is {
				asks <- r.GetWait().AsDuration()
			}
			return nil
		})
		s.handle = func(w http.ResponseWriter, r *http.Request) {
			if asked := <-asks; asked != 0 {
				t.Errorf("wait %v: before it knows that it has to wait it asks to be held for %v", wait, asked)
			}
			second := make(chan *answer, 1)
			go func() { second <- s.post(t, "k") }()
			<-asks
			if want > 0 {
				if asked := <-asks; asked > want || asked < want/2 {
					t.Errorf("wait %v: it asks to be held for %v, want %v", wait, asked, want)
				}
			} else if a := <-second; a.reason() != idemhttp.ReasonInProgress {
				t.Errorf("wait %v: answered %d %s", wait, a.status, a.body)
			}
			receipt(w, r)
		}
		if a := s.post(t, "k"); a.status != 201 {
			t.Errorf("answered %d %s", a.status, a.body)
		}
	}
}

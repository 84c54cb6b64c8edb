package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
)

// step is what the network does with one request.
type step func() (*http.Response, error)

// network is a RoundTripper that answers by a script, one step a request; after the last
// step it answers 201.
type network struct {
	mu    sync.Mutex
	steps []step

	keys, bodies []string
	times        []time.Time
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	body := ""
	if r.Body != nil {
		read, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(read)
		r.Body.Close()
	}
	n.keys = append(n.keys, strings.Join(r.Header.Values(idemhttp.KeyHeader), "|"))
	n.bodies, n.times = append(n.bodies, body), append(n.times, time.Now())
	next := says(201)
	if len(n.steps) > 0 {
		next, n.steps = n.steps[0], n.steps[1:]
	}
	response, err := next()
	if response != nil {
		response.Request = r
	}
	return response, err
}

// says is an answer with headers, name and value in turn.
func says(status int, headers ...string) step {
	return func() (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("said"))}, nil
	}
}

var errBroken = errors.New("connection reset")

func breaks() (*http.Response, error) { return nil, errBroken }

func posting(ctx context.Context, t *testing.T, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://shop.test/orders", body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// trip sends a request; its body is read and closed.
func trip(t *testing.T, tr *idemhttp.Transport, r *http.Request) (int, error) {
	t.Helper()
	response, err := tr.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != "said" {
		t.Errorf("the body is %q, %v", body, err)
	}
	return response.StatusCode, nil
}

func TestOneRequestHasOneKeyAndOneBodyThroughAllItsRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{steps: []step{breaks, says(503, idemhttp.ReasonHeader, string(idemhttp.ReasonGuardUnavailable)), says(202, idemhttp.ReasonHeader, string(idemhttp.ReasonInProgress))}}
		tr := &idemhttp.Transport{Base: n}
		r := posting(context.Background(), t, strings.NewReader("order"))
		if status, err := trip(t, tr, r); status != 201 || err != nil {
			t.Errorf("answered %d, %v", status, err)
		}
		if r.Header.Get(idemhttp.KeyHeader) != "" {
			t.Error("the caller's request was changed")
		}
		if len(n.keys) != 4 || len(slices.Compact(slices.Clone(n.keys))) != 1 || len(slices.Compact(n.bodies)) != 1 || n.bodies[0] != "order" {
			t.Errorf("sent under %q: %q", n.keys, n.bodies)
		}
		if at, is := idem.KeyTime(n.keys[0]); !is || time.Since(at) > time.Minute {
			t.Errorf("the key is %s", n.keys[0])
		}
		first := n.keys[0]
		_, _ = trip(t, tr, posting(context.Background(), t, strings.NewReader("order")))
		if n.keys[4] == first {
			t.Error("another request has the same key")
		}
	})
}

func TestWhatIsNoLastAnswerIsRepeatedAndAllElseGoesToTheCaller(t *testing.T) {
	for i, c := range []struct {
		step  step
		again bool
	}{
		{breaks, true},
		{says(202, idemhttp.ReasonHeader, string(idemhttp.ReasonInProgress)), true},
		{says(409, idemhttp.ReasonHeader, string(idemhttp.ReasonInProgress)), true},
		{says(503, idemhttp.ReasonHeader, string(idemhttp.ReasonGuardUnavailable)), true},
		{says(503, idemhttp.ReasonHeader, string(idemhttp.ReasonNotStarted)), true},
		{says(500, idemhttp.ReasonHeader, string(idemhttp.ReasonNotExecuted)), true},
		{says(429, idemhttp.ReasonHeader, string(idemhttp.ReasonNotExecuted)), true},
		{says(409, "Retry-After", "1"), true},
		{says(425), true}, {says(429), true}, {says(502), true}, {says(503), true}, {says(504), true},
		{says(401, idemhttp.ReasonHeader, string(idemhttp.ReasonNotExecuted)), false}, // the same request would hear the same
		{says(500, idemhttp.ReasonHeader, string(idemhttp.ReasonOutcomeUnknown)), false},
		{says(503, idemhttp.ReasonHeader, string(idemhttp.ReasonOutcomeUnknown)), false},
		{says(409, idemhttp.ReasonHeader, string(idemhttp.ReasonOutcomeUnknown)), false},
		{says(409, idemhttp.ReasonHeader, string(idemhttp.ReasonFingerprintMismatch)), false},
		{says(503, idemhttp.ReasonHeader, string(idemhttp.ReasonGuardRefused)), false},
		{says(200), false}, {says(202), false}, {says(303), false}, {says(400), false}, {says(404), false}, {says(409), false}, {says(500), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &network{steps: []step{c.step}}
			_, _ = trip(t, &idemhttp.Transport{Base: n}, posting(context.Background(), t, strings.NewReader("order")))
			if again := len(n.keys) == 2; again != c.again {
				t.Errorf("row %d: repeated: %v", i, again)
			}
		})
	}
}

func TestRetryAfterIsObeyedWithinBounds(t *testing.T) {
	for _, c := range []struct {
		said  string
		tr    idemhttp.Transport
		least time.Duration // 0: the answer goes to the caller
		most  time.Duration
	}{
		{"7", idemhttp.Transport{}, 7 * time.Second, 7 * time.Second},
		{"date", idemhttp.Transport{}, 9 * time.Second, 10 * time.Second},
		{"31", idemhttp.Transport{}, 0, 0},
		{"31", idemhttp.Transport{MaxPause: time.Minute}, 31 * time.Second, 31 * time.Second},
		{"45", idemhttp.Transport{MaxPause: time.Minute}, 0, 0}, // beyond the deadline
		{"-7", idemhttp.Transport{}, 100 * time.Millisecond, 125 * time.Millisecond},
		{"soon", idemhttp.Transport{}, 100 * time.Millisecond, 125 * time.Millisecond},
		{"99999999999999999999", idemhttp.Transport{}, 100 * time.Millisecond, 125 * time.Millisecond},
		{"0", idemhttp.Transport{}, 100 * time.Millisecond, 125 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			said := c.said
			if said == "date" {
				said = time.Now().Add(10 * time.Second).UTC().Format(http.TimeFormat)
			}
			n := &network{steps: []step{says(503, "Retry-After", said)}}
			c.tr.Base = n
			ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
			defer cancel()
			status, err := trip(t, &c.tr, posting(ctx, t, strings.NewReader("order")))
			switch {
			case err != nil:
				t.Error(err)
			case c.least == 0:
				if status != 503 || len(n.times) != 1 {
					t.Errorf("%q: answered %d after %d tries", said, status, len(n.times))
				}
			case len(n.times) != 2 || n.times[1].Sub(n.times[0]) < c.least || n.times[1].Sub(n.times[0]) > c.most:
				t.Errorf("%q: sent at %v", said, n.times)
			}
		})
	}
}

func TestRepetitionsEndAndTheErrorHasTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{steps: slices.Repeat([]step{breaks}, 10)}
		_, err := trip(t, &idemhttp.Transport{Base: n}, posting(context.Background(), t, strings.NewReader("order")))
		var kept *idemhttp.KeptKeyError
		if !errors.As(err, &kept) || kept.Key != n.keys[0] || !errors.Is(err, errBroken) || len(n.keys) != idemhttp.DefaultAttempts {
			t.Errorf("ended with %v after %q", err, n.keys)
		}
		if strings.Contains(err.Error(), kept.Key) {
			t.Errorf("the text has the key: %v", err)
		}
		n = &network{steps: slices.Repeat([]step{says(503)}, 10)}
		status, err := trip(t, &idemhttp.Transport{Base: n, Attempts: 2}, posting(context.Background(), t, strings.NewReader("order")))
		if status != 503 || err != nil || len(n.keys) != 2 {
			t.Errorf("answered %d, %v after %q", status, err, n.keys)
		}
	})
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		n := &network{steps: []step{says(503, "Retry-After", "20")}}
		time.AfterFunc(time.Second, cancel)
		_, err := trip(t, &idemhttp.Transport{Base: n}, posting(ctx, t, strings.NewReader("order")))
		if !errors.Is(err, context.Canceled) || !idemhttp.KeepKey(nil, err) || len(n.keys) != 1 {
			t.Errorf("ended with %v after %q", err, n.keys)
		}
	})
}

func TestABodyThatCannotBeSentAgainIsSentOnce(t *testing.T) {
	n := &network{steps: []step{breaks}}
	_, err := trip(t, &idemhttp.Transport{Base: n}, posting(context.Background(), t, io.MultiReader(strings.NewReader("order"))))
	if !errors.Is(err, errBroken) || len(n.keys) != 1 || n.keys[0] == "" {
		t.Errorf("ended with %v after %q", err, n.keys)
	}
}

func TestAKeyOfTheCallersStaysAndOnlyChosenMethodsGetOne(t *testing.T) {
	n := &network{}
	tr := &idemhttp.Transport{Base: n}
	r := posting(context.Background(), t, nil)
	r.Header.Set(idemhttp.KeyHeader, "mine")
	_, _ = trip(t, tr, r)
	_, _ = trip(t, tr, posting(idemhttp.WithKey(context.Background(), "stored"), t, nil))
	get := posting(context.Background(), t, nil)
	get.Method = http.MethodGet
	_, _ = trip(t, tr, get)
	_, _ = trip(t, &idemhttp.Transport{Base: n, Methods: []string{"GET"}}, get)
	if n.keys[0] != "mine" || n.keys[1] != "stored" || n.keys[2] != "" || n.keys[3] == "" {
		t.Errorf("sent under %q", n.keys)
	}
}

// A handler that copies its caller's headers, as proxies do.
func TestAnIncomingKeyNeverLeaksIntoANestedRequest(t *testing.T) {
	for _, need := range []idemhttp.Need{idemhttp.Required, idemhttp.Off} {
		n := &network{}
		tr := &idemhttp.Transport{Base: n}
		s := open(t, idemhttp.Config{Need: need}, idem.Options{})
		s.handle = func(_ http.ResponseWriter, r *http.Request) {
			for _, method := range []string{"POST", "DELETE"} {
				nested := posting(r.Context(), t, nil)
				nested.Method, nested.Header = method, r.Header.Clone()
				_, _ = trip(t, tr, nested)
			}
			_, _ = trip(t, tr, posting(idemhttp.WithKey(r.Context(), "k"), t, nil)) // it is said
		}
		_ = s.post(t, "k")
		if len(n.keys) != 3 || n.keys[0] == "k" || n.keys[0] == "" || n.keys[1] != "" || n.keys[2] != "k" {
			t.Errorf("need %v: sent under %q", need, n.keys)
		}
	}
}

func TestANestedRequestGetsTheSameDerivedKeyOnEveryAttempt(t *testing.T) {
	n := &network{}
	s := open(t, idemhttp.Config{Need: idemhttp.Optional}, idem.Options{})
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		_, _ = trip(t, &idemhttp.Transport{Base: n}, posting(idemhttp.WithDerivedKey(r.Context(), "charge"), t, nil))
		w.WriteHeader(http.StatusTooManyRequests) // not executed
	}
	_, _ = s.post(t, "k"), s.post(t, "k")
	_ = s.send(t, s.request(t, "POST", "/orders", "")) // unguarded
	want := idem.DeriveKey("acme", "default", "k", "charge")
	if len(n.keys) != 3 || n.keys[0] != want || n.keys[1] != want || n.keys[2] == want || n.keys[2] == "" {
		t.Errorf("sent under %q, want %s", n.keys, want)
	}
}

func TestAKeyIsDroppedOnlyOnADefiniteEnd(t *testing.T) {
	until := []string{"2026-12-07T20:38:39Z"}
	for status := 100; status < 600; status++ {
		open := status < 200 || status >= 400 || status == 307 || status == 308
		if keep := idemhttp.KeepKey(&http.Response{StatusCode: status, Header: http.Header{}}, nil); keep != open {
			t.Errorf("%d, of which nobody says that it is recorded: keep the key: %v", status, keep)
		}
		for name, recorded := range map[string]*http.Response{
			"recorded":              {StatusCode: status, Header: http.Header{idemhttp.ExpiresHeader: until}},
			"recorded, in trailers": {StatusCode: status, Header: http.Header{}, Trailer: http.Header{idemhttp.ExpiresHeader: until}},
			"replayed":              {StatusCode: status, Header: http.Header{idemhttp.ReplayedHeader: {"true"}}},
		} {
			if idemhttp.KeepKey(recorded, nil) {
				t.Errorf("%d, %s: keep the key", status, name)
			}
		}
	}
	open := &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{
		idemhttp.ReasonHeader: {string(idemhttp.ReasonNotRecorded)}, idemhttp.ReplayedHeader: {"true"},
	}}
	if !idemhttp.KeepKey(open, nil) || !idemhttp.KeepKey(nil, errBroken) || !idemhttp.KeepKey(nil, nil) {
		t.Error("a key is dropped wrongly")
	}
}

// What stands before the guard refuses a repetition of what has been executed.
func TestARefusalThatNoGuardHasRecordedIsNoReasonForANewKey(t *testing.T) {
	n := &network{steps: []step{breaks, says(401)}}
	r := posting(t.Context(), t, strings.NewReader("a"))
	response, err := (&idemhttp.Transport{Base: n}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized || !idemhttp.KeepKey(response, err) {
		t.Errorf("after %d: drop the key", response.StatusCode)
	}
}

func TestARedirectThatIsTheSameRequestElsewhereHasItsKeyAndOneToAnotherHasNone(t *testing.T) {
	for _, c := range []struct {
		status int
		key    string // of the caller's; empty: the transport's
		method string // of the request that follows
	}{{303, "", "GET"}, {303, "own", "GET"}, {302, "own", "GET"}, {307, "", "POST"}, {307, "own", "POST"}, {308, "", "POST"}} {
		n := &network{steps: []step{says(c.status, "Location", "http://elsewhere.test/next"), says(200)}}
		ctx := t.Context()
		if c.key != "" {
			ctx = idemhttp.WithKey(ctx, c.key)
		}
		client := &http.Client{Transport: &idemhttp.Transport{Base: n}}
		response, err := client.Do(posting(ctx, t, strings.NewReader("a")))
		if err != nil || response.Request.Method != c.method || len(n.keys) != 2 {
			t.Fatalf("%d: %v, %v", c.status, response, err)
		}
		response.Body.Close()
		want := ""
		if c.method == "POST" {
			want = n.keys[0]
		}
		if n.keys[0] == "" || c.key != "" && n.keys[0] != c.key || n.keys[1] != want {
			t.Errorf("%d with %q: sent under %q", c.status, c.key, n.keys)
		}
	}
}

func TestTheErrorOfARedirectHasTheKeyOfTheRequestThatWasExecuted(t *testing.T) {
	for _, status := range []int{303, 307} {
		n := &network{steps: []step{says(status, "Location", "/next"), breaks, breaks, breaks, breaks}}
		client := &http.Client{Transport: &idemhttp.Transport{Base: n, Attempts: 1}}
		response, err := client.Do(posting(t.Context(), t, strings.NewReader("a")))
		var kept *idemhttp.KeptKeyError
		if !errors.As(err, &kept) || kept.Key == "" || kept.Key != n.keys[0] {
			t.Errorf("%d: %v, %v; sent under %q", status, response, err, n.keys)
		}
		if response != nil {
			response.Body.Close()
		}
	}
}

// stalled is a body that ends when it is closed.
type stalled chan struct{}

func (s stalled) Read([]byte) (int, error) { <-s; return 0, io.ErrClosedPipe }
func (s stalled) Close() error             { close(s); return nil }

func TestAnAnswerWhoseBodyStallsHoldsUpNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := make(stalled)
		n := &network{steps: []step{func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{}, Body: onceClosed(body)}, nil
		}}}
		began := time.Now()
		if status, err := trip(t, &idemhttp.Transport{Base: n}, posting(t.Context(), t, strings.NewReader("a"))); status != 201 || err != nil || time.Since(began) > time.Second {
			t.Errorf("answered %d, %v after %v", status, err, time.Since(began))
		}
		<-body // it is closed
	})
}

// onceClosed may be closed more than once, as bodies may.
func onceClosed(body io.ReadCloser) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{body, closer(sync.OnceValue(body.Close))}
}

type closer func() error

func (c closer) Close() error { return c() }

func TestTheEmptyKeyIsNone(t *testing.T) {
	n := &network{}
	if _, err := trip(t, &idemhttp.Transport{Base: n}, posting(idemhttp.WithKey(t.Context(), ""), t, strings.NewReader("a"))); err != nil || n.keys[0] == "" {
		t.Errorf("sent under %q, %v", n.keys, err)
	}
}

// Both sides together: the connection breaks after the effect, and the client repeats.
func TestARequestWhoseAnswerIsLostIsAnsweredByItsRepetition(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	inner := s.server.Client().Transport
	lost := false
	client := &http.Client{Transport: &idemhttp.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := inner.RoundTrip(r)
		if err == nil && !lost {
			lost = true
			response.Body.Close()
			return nil, errBroken
		}
		return response, err
	})}}
	response, err := client.Do(s.request(t, "POST", "/orders", `{"n":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated || response.Header.Get(idemhttp.ReplayedHeader) != "true" || idemhttp.KeepKey(response, err) {
		t.Errorf("answered %d %v", response.StatusCode, response.Header)
	}
	s.MustHaveRun(t, 1)
	if key := response.Request.Header.Get(idemhttp.KeyHeader); s.Daemon.Record("acme", "", key) == nil {
		t.Error(fmt.Sprint("the key is not in the answer's request: ", key))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

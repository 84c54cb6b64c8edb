package idemhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// statuses are those that a piece of a row names: "404", "4xx", "600 to 999".
func statuses(t *testing.T, named string) (first, last int) {
	t.Helper()
	from, to, is := strings.Cut(named, " to ")
	if class, all := strings.CutSuffix(named, "xx"); all {
		from, to = class+"00", class+"99"
	} else if !is {
		to = from
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		t.Fatal(err)
	}
	if last, err = strconv.Atoi(to); err != nil {
		t.Fatal(err)
	}
	return first, last
}

func TestThePageSaysWhatEachHTTPStatusMeans(t *testing.T) {
	means := map[string]idemhttp.Outcome{
		"done":             idemhttp.OutcomeSucceeded,
		"not executed":     idemhttp.OutcomeNotExecuted,
		"as 5xx":           idemhttp.OutcomeUndeclared,
		"refused for good": idemhttp.OutcomeFinal,
		"in External it may have happened; in Transactional it was rolled back": idemhttp.OutcomeUndeclared,
	}
	told, others := map[int]string{}, map[int]string{}
	for _, row := range guardtest.Table(t, "### What an HTTP status means") {
		sentence, _, _ := strings.Cut(row[1], ".")
		what, _, _ := strings.Cut(sentence, ":")
		for named := range strings.SplitSeq(row[0], ", ") {
			class, rest := strings.CutPrefix(named, "other ")
			first, last := statuses(t, class)
			for code := first; code <= last; code++ {
				switch {
				case rest:
					others[code] = what
				case told[code] != "":
					t.Errorf("the page tells twice of %d", code)
				default:
					told[code] = what
				}
			}
		}
	}
	for code := 100; code <= 999; code++ {
		what := told[code]
		if what == "" {
			what = others[code]
		}
		if code < 200 && code != http.StatusSwitchingProtocols { // no answer
			if what != "" {
				t.Errorf("of %d the page says %q", code, what)
			}
			continue
		}
		if want, known := means[what]; !known || idemhttp.DefaultOutcome(code) != want {
			t.Errorf("of %d the page says %q", code, what)
		}
	}
}

// own and ofAnswer are what the page calls the status of a handler's answer.
const (
	own      = "the handler's own"
	ofAnswer = "that of the answer"
)

func TestThePageTellsOfEachAnswerOfTheHTTPGuard(t *testing.T) {
	ways := answers()
	for _, row := range guardtest.Table(t, "### Answers of an HTTP guard") {
		for name := range strings.SplitSeq(row[0], ", ") {
			at := name
			if row[1] == own {
				at += ", " + own
			}
			if len(ways[at]) == 0 {
				t.Errorf("nobody knows how to hear %s, or the page tells of it twice", at)
			}
			for profile, want := range map[idemhttp.Profile]string{idemhttp.ProfileDefault: row[1], idemhttp.ProfileIETF: row[2]} {
				var said []string
				hints := 0
				for _, way := range ways[at] {
					a := way.ask(t, profile)
					keep := idemhttp.KeepKey(&http.Response{StatusCode: a.status, Header: a.header}, nil)
					if string(a.reason()) != name || fmt.Sprint(keep) != row[3] {
						t.Errorf("%s, to keep the key: %v, but heard is %d %v %s", name, row[3], a.status, a.header, a.body)
					}
					if text := way.status(a, profile); !slices.Contains(said, text) {
						said = append(said, text)
					}
					if a.header.Get("Retry-After") != "" {
						hints++
					}
				}
				text := strings.Join(said, ", ")
				if profile == idemhttp.ProfileDefault && hints > 0 {
					if text += "; Retry-After"; hints < len(ways[at]) {
						text += " where it is known"
					}
				}
				if text != want {
					t.Errorf("%s: the page says %q, heard is %q", name, want, text)
				}
			}
			delete(ways, at)
		}
	}
	for at := range ways {
		t.Errorf("the page does not tell of %s", at)
	}
	for _, reason := range guardtest.Reasons(t) {
		_, guards := answers()[reason]
		_, handlers := answers()[reason+", "+own]
		if !guards && !handlers {
			t.Errorf("nobody hears %s", reason)
		}
	}
}

// way lets a guard answer.
type way struct {
	ask func(*testing.T, idemhttp.Profile) *answer
	// note is what the page adds to the status.
	note string
	// handlers is the status of the handler's answer, and called is the page's word for it.
	handlers int
	called   string
}

// status puts a status into the page's words: the other column says of a profile only what
// differs.
func (w way) status(a *answer, profile idemhttp.Profile) string {
	standard := profile == idemhttp.ProfileIETF
	switch {
	case w.called != "" && a.status == w.handlers && standard:
		return "the same"
	case w.called != "" && a.status == w.handlers:
		return w.called
	case standard:
		return fmt.Sprint(a.status)
	case a.header.Get("Location") != "":
		return fmt.Sprint(a.status, " with Location", w.note)
	}
	return fmt.Sprint(a.status, w.note)
}

// asking is a way: what an open shop answers.
func asking(c idemhttp.Config, ask func(*testing.T, *shop) *answer) way {
	return way{ask: func(t *testing.T, p idemhttp.Profile) *answer {
		c := c
		c.Profile = p
		return ask(t, open(t, c, idem.Options{Patience: time.Millisecond, FinishTimeout: time.Millisecond}))
	}}
}

func sending(c idemhttp.Config, body string, keys ...string) way {
	return asking(c, func(t *testing.T, s *shop) *answer { return s.send(t, s.request(t, "POST", "/orders", body, keys...)) })
}

// again is the second of two requests under one key.
func again(c idemhttp.Config, first http.HandlerFunc, body string) way {
	return asking(c, func(t *testing.T, s *shop) *answer {
		s.handle = first
		_ = s.post(t, "k")
		return s.send(t, s.request(t, "POST", "/orders", body, "k"))
	})
}

func faulty(fault error) way {
	return asking(idemhttp.Config{}, func(t *testing.T, s *shop) *answer {
		s.Daemon.Fault(func(proto.Message) error { return fault })
		return s.post(t, "k")
	})
}

// ending is a handler's answer, while the daemon takes outcomes or not.
func ending(code int, takes bool) way {
	w := asking(idemhttp.Config{}, func(t *testing.T, s *shop) *answer {
		s.handle = answering(code, "so it ended")
		s.Daemon.Fault(func(m proto.Message) error {
			if _, reserving := m.(*idemdv1.ReserveRequest); !reserving && !takes {
				return status.Error(codes.PermissionDenied, "no")
			}
			return nil
		})
		return s.post(t, "k")
	})
	w.handlers, w.called = code, own
	return w
}

// behind is a guard behind something that prepares its requests.
func behind(c idemhttp.Config, handle http.HandlerFunc, prepare func(http.ResponseWriter, *http.Request, http.Handler)) way {
	return way{ask: func(t *testing.T, p idemhttp.Profile) *answer {
		c := c
		c.Profile = p
		s := newShop(t, c, idem.Options{})
		s.handle = handle
		guarded := s.guard.Middleware(s)
		s.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { prepare(w, r, guarded) }))
		return s.post(t, "k")
	}}
}

// givingUp is a handler that returns without an answer, for its context has ended.
func givingUp(mode idem.Mode) way {
	type hangUp struct{}
	return behind(idemhttp.Config{Mode: mode}, func(_ http.ResponseWriter, r *http.Request) { r.Context().Value(hangUp{}).(context.CancelFunc)() },
		func(w http.ResponseWriter, r *http.Request, guarded http.Handler) {
			ctx, cancel := context.WithCancel(r.Context())
			guarded.ServeHTTP(w, r.WithContext(context.WithValue(ctx, hangUp{}, cancel)))
		})
}

// answers are the ways in which each reason comes about.
func answers() map[string][]way {
	const path = "/idempotency/"
	unknown, order := answering(http.StatusInternalServerError, "?"), `{"n":1}`
	expired, _ := status.New(codes.FailedPrecondition, "").WithDetails(&errdetails.ErrorInfo{Domain: "idemd", Reason: string(idem.KeyMayHaveExpired)})
	busy := func(t *testing.T, s *shop) *answer {
		end := running(t, s, "k")
		defer end()
		return s.post(t, "k")
	}
	withoutPath := asking(idemhttp.Config{Wait: -1}, busy)
	withoutPath.note = " without `StatusPath`"
	large := again(idemhttp.Config{}, answering(http.StatusAccepted, strings.Repeat("x", idem.MaxBodyBytes+1)), order)
	large.handlers, large.called = http.StatusAccepted, ofAnswer
	return map[string][]way{
		"IN_PROGRESS": {asking(idemhttp.Config{Wait: -1, StatusPath: path}, busy), withoutPath},
		"OUTCOME_UNKNOWN": {again(idemhttp.Config{}, unknown, order), givingUp(idem.External), again(idemhttp.Config{
			Settle: 2 * time.Hour, Wait: -1,
			Reconcile: func(context.Context, *http.Request, *idem.Unresolved) (idem.Verdict, error) {
				return idem.WasNotExecuted(), nil
			},
		}, unknown, order)},
		"FINGERPRINT_MISMATCH": {again(idemhttp.Config{}, nil, `{"n":2}`)},
		"KEY_MAY_HAVE_EXPIRED": {faulty(expired.Err())},
		"ANSWER_NOT_KEPT":      {large},
		"KEY_REQUIRED":         {sending(idemhttp.Config{}, order)},
		"KEY_INVALID":          {sending(idemhttp.Config{}, order, "a,b"), sending(idemhttp.Config{}, order, "k", "k")},
		"REQUEST_TOO_LARGE":    {sending(idemhttp.Config{MaxBodyBytes: 4}, order, "k")},
		"REQUEST_REFUSED":      {sending(idemhttp.Config{Fingerprint: fingerprint.HTTPRules{Rules: fingerprint.Rules{Strict: true}}}, `{"n":1,"n":2}`, "k")},
		"GUARD_UNAVAILABLE":    {faulty(fakedaemon.Away(nil))},
		"NOT_STARTED": {behind(idemhttp.Config{MinRemaining: time.Hour}, nil, func(w http.ResponseWriter, r *http.Request, guarded http.Handler) {
			http.TimeoutHandler(guarded, time.Minute, "late").ServeHTTP(w, r)
		})},
		"GUARD_REFUSED": {faulty(status.Error(codes.PermissionDenied, "no")), behind(idemhttp.Config{}, nil, func(w http.ResponseWriter, r *http.Request, guarded http.Handler) {
			_, _ = io.Copy(io.Discard, r.Body)
			guarded.ServeHTTP(w, r)
		})},
		"NO_SUCH_REQUEST": {asking(idemhttp.Config{StatusPath: path}, func(t *testing.T, s *shop) *answer {
			return s.send(t, s.request(t, "GET", path+encoded("never"), ""))
		})},
		"NOT_EXECUTED":            {givingUp(idem.Transactional)},
		"NOT_EXECUTED, " + own:    {ending(http.StatusTooManyRequests, true)},
		"OUTCOME_UNKNOWN, " + own: {ending(http.StatusBadGateway, true), ending(http.StatusBadGateway, false)},
		"NOT_RECORDED, " + own:    {ending(http.StatusNotFound, false)},
	}
}

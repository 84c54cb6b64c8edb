package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/guardtest"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The table of docs/guards.md, every status that a handler can have.
func TestWhatAStatusMeansIsTheTableOfTheDocs(t *testing.T) {
	notExecuted, undeclared := []int{401, 412, 421, 425, 428, 429}, []int{408, 499}
	for _, mode := range []idem.Mode{idem.External, idem.Transactional} {
		s := open(t, idemhttp.Config{Mode: mode}, idem.Options{})
		for code := 200; code < 600; code++ {
			key := fmt.Sprint(code)
			body := "so it ended"
			if code == 204 || code == 304 {
				body = ""
			}
			s.handle = answering(code, body)
			a := s.post(t, key)
			wantAnswer(t, a, code, body, false)
			state, reason := unknown, idemhttp.ReasonOutcomeUnknown
			if mode == idem.Transactional {
				state, reason = retryable, idemhttp.ReasonNotExecuted
			}
			switch {
			case slices.Contains(notExecuted, code):
				state, reason = retryable, idemhttp.ReasonNotExecuted
			case slices.Contains(undeclared, code):
			case code < 400:
				state, reason = succeeded, ""
			case code < 500:
				state, reason = final, ""
			}
			s.MustBeStored(t, key, state)
			if a.reason() != reason || (a.header.Get(idemhttp.ExpiresHeader) == "") != (reason != "") {
				t.Errorf("%d: headers %v, want the reason %q", code, a.header, reason)
			}
			again := s.post(t, key)
			if state == unknown {
				wantRefusal(t, again, 409, idemhttp.ReasonOutcomeUnknown, true)
			} else {
				wantAnswer(t, again, code, body, state != retryable)
			}
		}
	}
}

func TestAHandlersOwnDeclarationCounts(t *testing.T) {
	for _, mode := range []idem.Mode{idem.External, idem.Transactional} {
		s := open(t, idemhttp.Config{Mode: mode}, idem.Options{})
		for name, c := range map[string]struct {
			declare func(*http.Request)
			state   idemdv1.State
			reason  idemhttp.Reason
		}{
			"succeeded": {idemhttp.Succeeded, succeeded, ""},
			"final":     {idemhttp.Final, final, ""},
			"not":       {idemhttp.NotExecuted, retryable, idemhttp.ReasonNotExecuted},
			"unknown":   {idemhttp.Unknown, map[idem.Mode]idemdv1.State{idem.External: unknown, idem.Transactional: retryable}[mode], idemhttp.ReasonOutcomeUnknown},
			"last":      {func(r *http.Request) { idemhttp.Unknown(r); idemhttp.Final(r) }, final, ""},
		} {
			for _, code := range []int{200, 404, 503} {
				s.handle = func(w http.ResponseWriter, r *http.Request) {
					c.declare(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, "deeper")))
					w.WriteHeader(code)
				}
				key := fmt.Sprint(name, code)
				if a := s.post(t, key); a.status != code || a.reason() != c.reason {
					t.Errorf("%s: answered %d %v", key, a.status, a.header)
				}
				s.MustBeStored(t, key, c.state)
			}
		}
	}
}

func TestTheTableOfStatusesCanBeReplaced(t *testing.T) {
	s := open(t, idemhttp.Config{Outcome: func(r *http.Request, status int) idemhttp.Outcome {
		switch {
		case r.URL.Path != "/orders":
			t.Errorf("asked about %s", r.URL)
		case status == 503:
			return idemhttp.OutcomeNotExecuted
		case status == 500:
			return idemhttp.OutcomeFinal
		case status == 200:
			return idemhttp.OutcomeUnknown
		case status == 501:
			return idemhttp.OutcomeSucceeded
		}
		return idemhttp.OutcomeUndeclared // of all others, 2xx too: as the table says
	}}, idem.Options{})
	for code, want := range map[int]idemdv1.State{503: retryable, 500: final, 200: unknown, 501: succeeded, 422: final, 404: final, 201: succeeded, 429: retryable, 502: unknown} {
		s.handle = answering(code, "")
		_ = s.post(t, fmt.Sprint(code))
		s.MustBeStored(t, fmt.Sprint(code), want)
	}
}

func TestAnAnswerThatCannotBeRecordedIsGivenToItsCallerAndToldOf(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{FinishTimeout: time.Millisecond})
	s.Daemon.Fault(func(m proto.Message) error {
		if _, reserving := m.(*idemdv1.ReserveRequest); !reserving {
			return status.Error(codes.PermissionDenied, "no")
		}
		return nil
	})
	for code, reason := range map[int]idemhttp.Reason{201: "", 404: idemhttp.ReasonNotRecorded, 500: idemhttp.ReasonOutcomeUnknown, 429: idemhttp.ReasonNotExecuted} {
		s.handle = answering(code, "so it ended")
		key := fmt.Sprint(code)
		a := s.post(t, key)
		wantAnswer(t, a, code, "so it ended", false)
		if a.reason() != reason || a.header.Get(idemhttp.ExpiresHeader) != "" {
			t.Errorf("%d: headers %v", code, a.header)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Unrecorded || got[0].Err == nil || got[0].Reason != reason {
			t.Errorf("observed %+v", got)
		}
		s.MustBeStored(t, key, processing) // nobody runs it again
	}
}

// What somebody has stored by Resolve is never taken for what it is not.
func TestAnOperatorsVerdictIsAnsweredWithWhatItHas(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{})
	whole := idemhttp.Result(201, http.Header{"Content-Type": {"application/json"}, "Location": {"/orders/7"}, "X-Secret": {"1"}}, []byte("{}"))
	for i, c := range []struct {
		verdict idemdv1.Verdict
		result  *idem.Result
		status  int
		body    string // empty: its answer was not kept
	}{
		{idemdv1.Verdict_VERDICT_SUCCEEDED, whole, 201, "{}"},
		{idemdv1.Verdict_VERDICT_SUCCEEDED, &idem.Result{Body: []byte("{}")}, 200, "{}"},
		{idemdv1.Verdict_VERDICT_SUCCEEDED, &idem.Result{Status: 7}, 200, ""},
		{idemdv1.Verdict_VERDICT_SUCCEEDED, nil, 200, ""},
		{idemdv1.Verdict_VERDICT_FAILED_FINAL, &idem.Result{Status: 402, Body: []byte("no")}, 402, "no"},
		{idemdv1.Verdict_VERDICT_FAILED_FINAL, nil, 409, ""},
	} {
		key := fmt.Sprint(i)
		s.handle = answering(500, "?")
		_ = s.post(t, key)
		_, err := s.Client.Resolve(guardtest.Bounded(t), &idemdv1.ResolveRequest{
			Tenant: "acme", Key: key, ExpectedVersion: s.Daemon.Record("acme", "", key).GetVersion(), Verdict: c.verdict, Result: c.result, Reason: "seen",
		})
		if err != nil {
			t.Fatal(err)
		}
		a := s.post(t, key)
		if c.body == "" {
			wantRefusal(t, a, c.status, idemhttp.ReasonAnswerNotKept, false)
		} else {
			wantAnswer(t, a, c.status, c.body, true)
		}
		if !a.replayed() || a.header.Get("X-Secret") != "" || i == 0 && a.header.Get("Location") != "/orders/7" {
			t.Errorf("%d: headers %v", i, a.header)
		}
	}
}

func TestAReconcilerSettlesWhatNobodyKnows(t *testing.T) {
	s := open(t, idemhttp.Config{Reconcile: func(_ context.Context, r *http.Request, u *idem.Unresolved) (idem.Verdict, error) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"n":1}` || u.Key != "k" || r.URL.Path != "/orders" {
			return idem.Verdict{}, errors.New("asked about something else")
		}
		return idem.WasExecuted(idemhttp.Result(201, http.Header{"Location": {"/orders/1"}}, []byte("reconciled"))), nil
	}}, idem.Options{})
	s.handle = answering(502, "bank away")
	_ = s.post(t, "k")
	for _, found := range []bool{true, false} { // then it is known
		_ = s.Events.Take()
		a := s.post(t, "k")
		wantAnswer(t, a, 201, "reconciled", true)
		if a.header.Get("Location") != "/orders/1" {
			t.Errorf("headers %v", a.header)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Replayed || got[0].Reconciled != found {
			t.Errorf("observed %+v", got)
		}
	}
	s.MustHaveRun(t, 1)
}

// The daemon in these tests says that an hour has passed since the outcome got open.
func TestNotExecutedIsBelievedAfterTheSettleTimeOnly(t *testing.T) {
	for settle, want := range map[time.Duration]int{time.Minute: 201, 2 * time.Hour: 409} {
		s := open(t, idemhttp.Config{
			Settle: settle, Wait: -1,
			Reconcile: func(context.Context, *http.Request, *idem.Unresolved) (idem.Verdict, error) {
				return idem.WasNotExecuted(), nil
			},
		}, idem.Options{})
		s.handle = answering(http.StatusInternalServerError, "")
		_ = s.post(t, "k")
		s.handle = nil
		_ = s.Events.Take()
		if a := s.post(t, "k"); a.status != want {
			t.Errorf("settle time %v: answered %d %s", settle, a.status, a.body)
		}
		if got := s.Events.Take(); len(got) != 1 || got[0].Reconciled != (want == 201) {
			t.Errorf("settle time %v: observed %+v", settle, got)
		}
	}
}

package idemhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// said is what a guard of another service says of its key.
func said(t *testing.T, code codes.Code, domain, reason string) error {
	t.Helper()
	s, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Domain: domain, Reason: reason})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

// answered is an answer over HTTP: with a guard's reason or none, recorded by it or not.
type answered struct {
	status   int
	reason   string
	recorded bool
}

func (a answered) response() *http.Response {
	h := http.Header{}
	if a.reason != "" {
		h.Set(idemhttp.ReasonHeader, a.reason)
	}
	if a.recorded {
		h.Set(idemhttp.ExpiresHeader, "2026-12-07T14:41:10Z")
	}
	return &http.Response{StatusCode: a.status, Header: h, Body: http.NoBody}
}

func TestWhatAnInnerGuardSaysIsDeclaredOfTheOuterRequest(t *testing.T) {
	const undeclared = idemdv1.State_STATE_UNSPECIFIED
	for name, c := range map[string]struct {
		err      error
		response answered      // status 0: it is for gRPC
		stored   idemdv1.State // unspecified: nothing is declared
	}{
		"not executed":         {said(t, codes.Unavailable, "idem", "NOT_EXECUTED"), answered{503, "NOT_EXECUTED", false}, retryable},
		"not started":          {said(t, codes.DeadlineExceeded, "idem", "NOT_STARTED"), answered{503, "NOT_STARTED", false}, retryable},
		"guard away":           {said(t, codes.Unavailable, "idem", "GUARD_UNAVAILABLE"), answered{503, "GUARD_UNAVAILABLE", false}, retryable},
		"outcome unknown":      {said(t, codes.FailedPrecondition, "idem", "OUTCOME_UNKNOWN"), answered{409, "OUTCOME_UNKNOWN", false}, unknown},
		"in progress":          {said(t, codes.Aborted, "idem", "IN_PROGRESS"), answered{202, "IN_PROGRESS", false}, unknown},
		"mismatch":             {said(t, codes.FailedPrecondition, "idem", "FINGERPRINT_MISMATCH"), answered{409, "FINGERPRINT_MISMATCH", false}, unknown},
		"refused, not told":    {said(t, codes.NotFound, "idem", "NOT_RECORDED"), answered{404, "NOT_RECORDED", false}, unknown},
		"wrapped":              {fmt.Errorf("charging: %w", said(t, codes.Unavailable, "idem", "NOT_EXECUTED")), answered{}, retryable},
		"no answer":            {status.Error(codes.Unavailable, "connection refused"), answered{502, "", false}, unknown},
		"too late":             {status.Error(codes.DeadlineExceeded, "late"), answered{504, "", false}, unknown},
		"no status":            {errors.New("broken"), answered{}, unknown},
		"its own deadline":     {context.DeadlineExceeded, answered{}, unknown},
		"a refusal":            {status.Error(codes.NotFound, "no such card"), answered{404, "", true}, undeclared},
		"a refusal before it":  {nil, answered{404, "", false}, unknown},
		"a refusal's reason":   {said(t, codes.FailedPrecondition, "shop.example", "NOT_EXECUTED"), answered{402, "", true}, undeclared},
		"done":                 {nil, answered{201, "", true}, undeclared},
		"done, answer too big": {nil, answered{201, "ANSWER_NOT_KEPT", false}, undeclared},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, declare := range map[string]func(*http.Request) bool{
				"gRPC": func(r *http.Request) bool { return idemhttp.DeclareCall(r, c.err) },
				"HTTP": func(r *http.Request) bool {
					response := c.response.response()
					defer response.Body.Close()
					return idemhttp.DeclareResponse(r, response)
				},
			} {
				if kind == "HTTP" && c.response.status == 0 || kind == "gRPC" && c.err == nil && c.stored != undeclared {
					continue
				}
				s := open(t, idemhttp.Config{}, idem.Options{})
				s.handle = func(w http.ResponseWriter, r *http.Request) {
					if is := declare(r); is != (c.stored != undeclared) {
						t.Errorf("%s: declared %v", kind, is)
					}
					w.WriteHeader(http.StatusTeapot) // final, by the table
				}
				want := c.stored
				if _ = s.post(t, "k"); want == undeclared {
					want = final
				}
				s.MustBeStored(t, "k", want)
			}
		})
	}
}

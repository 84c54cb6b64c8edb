package main

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/pgtest"
)

var numbers = regexp.MustCompile(`[0-9]{12,}`)

// transcript writes answers down so that those of two stores can be compared.
type transcript struct{ strings.Builder }

func (s *transcript) say(what string, answers ...any) {
	s.WriteString(what)
	for _, a := range answers {
		if err, is := a.(error); is {
			a = numbers.ReplaceAllString(describe(err), "N") // versions differ
		}
		fmt.Fprint(s, " ", a)
	}
	s.WriteString("\n")
}

func (s *transcript) decision(r *idemdv1.ReserveResponse, err error) {
	if err != nil {
		s.say("reserve", err)
		return
	}
	switch d := r.GetDecision().(type) {
	case *idemdv1.ReserveResponse_Owned:
		o := d.Owned
		s.say("owned", o.GetAttempt(), o.GetRepeated(), o.GetTakeover(), o.GetLeaseRemaining().AsDuration().Round(5*time.Second), o.GetLastFailure())
	case *idemdv1.ReserveResponse_InProgress:
		p := d.InProgress
		s.say("in progress", p.GetState(), p.GetAttempt(), p.GetOwner(), p.GetRetryAfter().AsDuration() <= time.Second)
	case *idemdv1.ReserveResponse_Replay:
		p := d.Replay
		s.say("replay", p.GetState(), p.GetAttempt(), string(p.GetResult().GetBody()), p.GetExpiresAt().AsTime().Sub(p.GetFinishedAt().AsTime()))
	case *idemdv1.ReserveResponse_Unresolved:
		s.say("unresolved", d.Unresolved.GetAttempt(), d.Unresolved.GetOwner(), d.Unresolved.GetVersion() > 0)
	}
}

func hasRetryHint(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if retry, is := detail.(*errdetails.RetryInfo); is && retry.GetRetryDelay().AsDuration() > 0 {
			return true
		}
	}
	return false
}

// startPostgres starts a server that the test may stop and kill.
func startPostgres(t *testing.T) *pgtest.Server {
	t.Helper()
	return pgtest.Start(t)
}

// until waits until something is the case that other processes bring about.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !reached(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain for: %s", patience, what)
		}
	}
}

func probe(t *testing.T, addr, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// body is what a request is answered with 200.
func body(t *testing.T, request *http.Request) string {
	t.Helper()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %d, %v", request.URL, response.StatusCode, err)
	}
	return string(text)
}

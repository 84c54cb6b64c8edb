package idemhttp_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/idemhttp"
	"github.com/idemd/idemd/clients/go/internal/fakedaemon"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// running posts a first request whose handler goes on until it is told to end.
func running(t *testing.T, s *shop, key string) (end func()) {
	t.Helper()
	started, over, first := make(chan struct{}), make(chan struct{}), make(chan *answer)
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-over
		receipt(w, r)
	}
	go func() { first <- s.send(t, s.request(t, "POST", "/orders", `{"n":1}`, key)) }()
	<-started
	return func() {
		close(over)
		wantAnswer(t, <-first, 201, receiptOfOne, false)
	}
}

func encoded(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

func TestWhatIsUnderWayAndWhatIsMisusedAreToldApart(t *testing.T) {
	for _, c := range []struct {
		config       idemhttp.Config
		running, bad int
	}{
		{idemhttp.Config{}, 409, 409},
		{idemhttp.Config{StatusPath: "/idempotency/"}, 202, 409},
		{idemhttp.Config{Profile: idemhttp.ProfileIETF, StatusPath: "/idempotency/"}, 409, 422},
	} {
		c.config.Wait = -1
		s := open(t, c.config, idem.Options{})
		end := running(t, s, "k")
		a := s.post(t, "k")
		wantRefusal(t, a, c.running, idemhttp.ReasonInProgress, true)
		if a.header.Get("Retry-After") != "1" || (a.header.Get("Location") != "") != (a.status == 202) {
			t.Errorf("headers %v", a.header)
		}
		wantRefusal(t, s.send(t, s.request(t, "POST", "/orders", `{"n":2}`, "k")), c.bad, idemhttp.ReasonFingerprintMismatch, false)
		end()
		s.MustHaveRun(t, 1)
	}
}

func TestARequestThatWaitsGetsTheAnswer(t *testing.T) {
	s := open(t, idemhttp.Config{StatusPath: "/idempotency/"}, idem.Options{})
	end := running(t, s, "k")
	calls, second := s.Daemon.Calls(), make(chan *answer)
	go func() { second <- s.send(t, s.request(t, "POST", "/orders", `{"n":1}`, "k")) }()
	until(t, func() bool { return s.Daemon.Calls() > calls })
	end()
	wantAnswer(t, <-second, 201, receiptOfOne, true)
}

// The Location of a 202 tells what a repetition would be told, and executes nothing.
func TestAStatusResourceTellsHowItStands(t *testing.T) {
	s := open(t, idemhttp.Config{StatusPath: "/idempotency/", Wait: -1}, idem.Options{Namespace: "payments", Patience: time.Millisecond})
	const key = `we/ird"`
	end := running(t, s, "k")
	at := s.post(t, "k").header.Get("Location")
	a := s.send(t, s.request(t, "GET", at, ""))
	wantRefusal(t, a, 202, idemhttp.ReasonInProgress, true)
	if a.header.Get("Location") != at || a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	end()
	for range 2 {
		a = s.send(t, s.request(t, "GET", at, ""))
		if wantAnswer(t, a, 201, receiptOfOne, true); a.header.Get("Location") != "/orders/1" || a.header.Get("Cache-Control") != "no-store" || a.header.Get(idemhttp.ExpiresHeader) == "" {
			t.Errorf("headers %v", a.header)
		}
	}
	if a := s.send(t, s.request(t, "HEAD", at, "")); a.status != 201 || a.body != "" {
		t.Errorf("HEAD: answered %d %q", a.status, a.body)
	}
	if a := s.send(t, s.request(t, "DELETE", at, "")); a.status != 405 || a.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("DELETE: answered %d %v", a.status, a.header)
	}
	ran := s.Ran.Load()
	for code, reason := range map[int]idemhttp.Reason{429: idemhttp.ReasonNotExecuted, 500: idemhttp.ReasonOutcomeUnknown} {
		key := fmt.Sprint(code)
		at := "/idempotency/" + encoded(key)
		s.handle = answering(code, "so it ended")
		_ = s.post(t, key)
		wantRefusal(t, s.send(t, s.request(t, "GET", at, "")), 409, reason, true)
	}
	s.handle = answering(404, "no such card")
	_ = s.post(t, "refused")
	wantAnswer(t, s.send(t, s.request(t, "GET", "/idempotency/"+encoded("refused"), "")), 404, "no such card", true)
	for _, path := range []string{"", encoded("never"), "!", encoded(key), encoded("k") + "x"} {
		wantRefusal(t, s.send(t, s.request(t, "GET", "/idempotency/"+path, "")), 404, idemhttp.ReasonNoSuchRequest, true)
	}
	if s.Ran.Load() != ran+3 {
		t.Error("a status resource has executed something")
	}
	s.Daemon.Fault(fakedaemon.Away)
	wantRefusal(t, s.send(t, s.request(t, "GET", at, "")), 503, idemhttp.ReasonGuardUnavailable, true)
}

func TestAStatusResourceIsForItsTenantAndSubjectOnly(t *testing.T) {
	s := open(t, idemhttp.Config{
		StatusPath: "/idempotency/", StatusSecret: []byte("0123456789abcdef"), Wait: -1, Tenant: from("X-Tenant"), Subject: from("X-User"),
	}, idem.Options{})
	as := func(method, path, tenant, user string) *answer {
		r := s.request(t, method, path, `{"n":1}`, "k")
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("X-User", user)
		return s.send(t, r)
	}
	var at string
	s.handle = func(w http.ResponseWriter, r *http.Request) {
		at = as("POST", "/orders", "acme", "ann").header.Get("Location")
		receipt(w, r)
	}
	_ = as("POST", "/orders", "acme", "ann")
	wantAnswer(t, as("GET", at, "acme", "ann"), 201, receiptOfOne, true)
	key, mac, _ := strings.Cut(at, ".")
	for name, a := range map[string]*answer{
		"another subject": as("GET", at, "acme", "bob"), "another tenant": as("GET", at, "globex", "ann"), "parts moved": as("GET", at, "acmea", "nn"),
		"no signature": as("GET", key, "acme", "ann"), "half of one": as("GET", key+"."+mac[:20], "acme", "ann"), "another key's": as("GET", "/idempotency/"+encoded("j")+"."+mac, "acme", "ann"),
	} {
		t.Run(name, func(t *testing.T) { wantRefusal(t, a, 404, idemhttp.ReasonNoSuchRequest, true) })
	}
	wantRefusal(t, as("GET", at, "", "ann"), 401, "", true)
	wantRefusal(t, as("GET", at, "acme", ""), 401, "", true)
}

func TestWhileTheDaemonIsAwayAGuardedHandlerIsClosed(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{Patience: time.Millisecond})
	s.Daemon.Fault(fakedaemon.Away)
	a := s.post(t, "k")
	wantRefusal(t, a, 503, idemhttp.ReasonGuardUnavailable, true)
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", a.header)
	}
	s.MustHaveRun(t, 0)
	s.wantEndings(t, idemhttp.Refused)
	s.Daemon.Fault(nil)
	wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, false)
}

func TestAnOpenGuardRunsUnguardedOnlyWhileTheDaemonIsAwayAndTellsOfIt(t *testing.T) {
	s := open(t, idemhttp.Config{Open: true}, idem.Options{Patience: time.Millisecond})
	for _, fault := range []error{status.Error(codes.Unavailable, "connection refused"), status.Error(codes.DeadlineExceeded, "silence"), status.Error(codes.Unknown, "502")} {
		s.Daemon.Fault(func(proto.Message) error { return fault })
		wantAnswer(t, s.post(t, "k"), 201, receiptOfOne, false)
		if got := s.Events.Take(); len(got) != 1 || got[0].Ending != idemhttp.Unguarded || got[0].Err == nil {
			t.Errorf("%v: observed %+v", fault, got)
		}
	}
	s.Ran.Store(0)
	// A decision is one, also where it is unwelcome.
	for _, code := range []codes.Code{codes.PermissionDenied, codes.InvalidArgument, codes.ResourceExhausted} {
		s.Daemon.Fault(func(proto.Message) error { return status.Error(code, "no") })
		if a := s.post(t, "k"); a.status != 503 {
			t.Errorf("%v: answered %d", code, a.status)
		}
	}
	s.MustHaveRun(t, 0)
}

// No refusal is a 500: that would say that the server is broken.
func TestWhatTheDaemonRefusesIsAnsweredByItsKind(t *testing.T) {
	s := open(t, idemhttp.Config{Fingerprint: fingerprint.HTTPRules{Rules: fingerprint.Rules{Strict: true}}}, idem.Options{Patience: time.Millisecond})
	for _, c := range []struct {
		from   codes.Code
		said   idem.Reason
		status int
		reason idemhttp.Reason
		keep   bool
	}{
		{codes.FailedPrecondition, idem.KeyMayHaveExpired, 409, idemhttp.ReasonKeyMayHaveExpired, true},
		{codes.FailedPrecondition, idem.FingerprintMismatch, 409, idemhttp.ReasonFingerprintMismatch, false},
		{codes.InvalidArgument, idem.KeyInvalid, 400, idemhttp.ReasonKeyInvalid, false},
		{codes.InvalidArgument, idem.TimeInvalid, 503, idemhttp.ReasonGuardRefused, true},
		{codes.InvalidArgument, idem.TenantInvalid, 503, idemhttp.ReasonGuardRefused, true},
		{codes.DataLoss, idem.RecordUnreadable, 503, idemhttp.ReasonGuardRefused, true},
		{codes.Unauthenticated, "", 503, idemhttp.ReasonGuardRefused, true},
		{codes.Unavailable, idem.StoreUnavailable, 503, idemhttp.ReasonGuardUnavailable, true},
		{codes.ResourceExhausted, "", 503, idemhttp.ReasonGuardUnavailable, true},
	} {
		st, err := status.New(c.from, "said to the server").WithDetails(&errdetails.ErrorInfo{Domain: "idemd", Reason: string(c.said)})
		if err != nil {
			t.Fatal(err)
		}
		s.Daemon.Fault(func(proto.Message) error { return st.Err() })
		a := s.post(t, "k")
		if wantRefusal(t, a, c.status, c.reason, c.keep); c.status == 503 && strings.Contains(a.body, "said to the server") {
			t.Errorf("it tells the caller what was meant for the server: %s", a.body)
		}
	}
	s.Daemon.Fault(nil)
	wantRefusal(t, s.send(t, s.request(t, "POST", "/orders", `{"n":1,"n":2}`, "k")), 400, idemhttp.ReasonRequestRefused, false)
	s.MustHaveRun(t, 0)
}

func TestARequestWithTooLittleTimeLeftIsNotStarted(t *testing.T) {
	s := newShop(t, idemhttp.Config{MinRemaining: time.Hour}, idem.Options{})
	guarded := s.guard.Middleware(s)
	s.serve(t, http.TimeoutHandler(guarded, time.Minute, "late"))
	wantRefusal(t, s.post(t, "k"), 503, idemhttp.ReasonNotStarted, true)
	s.MustHaveRun(t, 0)
	if s.Daemon.Calls() != 0 {
		t.Error("something was reserved")
	}
}

func TestTheTimeInAKeyIsThatOfTheFirstAttempt(t *testing.T) {
	for _, reads := range []bool{false, true} {
		s := open(t, idemhttp.Config{KeyHasTime: reads}, idem.Options{})
		var first time.Time
		s.Daemon.Fault(func(m proto.Message) error {
			if r, is := m.(*idemdv1.ReserveRequest); is {
				first = r.GetFirstAttemptAt().AsTime()
			}
			return nil
		})
		const key = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f" // of 2022-02-22
		_ = s.post(t, key)
		if old := time.Since(first) > 365*24*time.Hour; old != reads {
			t.Errorf("KeyHasTime %v: the first attempt is said to have been at %v", reads, first)
		}
	}
}

// In whole seconds, and never earlier than the daemon has said.
func TestRetryAfterIsRoundedUp(t *testing.T) {
	s := open(t, idemhttp.Config{}, idem.Options{Patience: time.Millisecond})
	for hint, want := range map[time.Duration]string{0: "1", 2 * time.Second: "2", 2001 * time.Millisecond: "3"} {
		st, err := status.New(codes.Unavailable, "draining").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(hint)})
		if err != nil {
			t.Fatal(err)
		}
		s.Daemon.Fault(func(proto.Message) error { return st.Err() })
		if a := s.post(t, "k"); a.header.Get("Retry-After") != want {
			t.Errorf("%v: headers %v", hint, a.header)
		}
	}
}

package idem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Every reason that docs/api.md lists has a constant, and no other.
func TestEveryDocumentedReasonHasAConstant(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	documented, here := map[string]bool{}, map[string]bool{}
	_, section, _ := strings.Cut(string(docs), "\n## Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	word := regexp.MustCompile(`[A-Z]+(_[A-Z]+)+|DRAINING|OVERLOADED|UNAUTHENTICATED`)
	for row := range strings.Lines(section) {
		if cells := strings.Split(row, "|"); len(cells) > 3 {
			for _, reason := range word.FindAllString(cells[1], -1) {
				documented[reason] = true
			}
		}
	}
	for _, match := range regexp.MustCompile(`Reason = "([A-Z_]+)"`).FindAllStringSubmatch(string(code), -1) {
		here[match[1]] = true
		if !documented[match[1]] {
			t.Errorf("%s is not documented", match[1])
		}
	}
	for reason := range documented {
		if !here[reason] {
			t.Errorf("%s has no constant", reason)
		}
	}
	if len(here) < 20 {
		t.Errorf("only %d reasons were found", len(here))
	}
}

func TestARefusalIsReadIntoATypedError(t *testing.T) {
	hint := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(3 * time.Second)})
	refused := refusalIn("key", codes.FailedPrecondition, FingerprintMismatch, hint)
	bubble(t, script{"Lookup": {refused}}, Options{Patience: time.Nanosecond}, func(t *testing.T, c *Client, _ *fake) {
		_, err := c.Lookup(t.Context(), &idemdv1.LookupRequest{})
		err = fmt.Errorf("asking: %w", err)
		var e *Error
		if !errors.As(err, &e) || e.Code != codes.FailedPrecondition || e.Reason != FingerprintMismatch || e.RetryAfter != 3*time.Second || e.Metadata["field"] != "key" {
			t.Errorf("read %#v", e)
		}
		if !errors.Is(err, FingerprintMismatch) || errors.Is(err, StaleToken) || status.Code(errors.Unwrap(err)) != codes.FailedPrecondition {
			t.Errorf("%v can't be branched on", err)
		}
		if text := e.Error(); text != "idemd: FINGERPRINT_MISMATCH: refused" {
			t.Errorf("it says %q", text)
		}
	})
}

func TestReasonsOfOtherDomainsAreNotIdemds(t *testing.T) {
	info := protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: string(StaleToken), Domain: "example.com"})
	st, err := status.New(codes.Internal, "no").WithDetails(info)
	if err != nil {
		t.Fatal(err)
	}
	if e := errorOf(st.Err()); e.Reason != "" || errors.Is(e, StaleToken) {
		t.Errorf("read %#v", e)
	}
}

func TestAPlainCallIsRepeatedWithinItsPatience(t *testing.T) {
	bubble(t, script{"Lookup": {away(), away(), &idemdv1.LookupResponse{}}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		if response, err := c.Lookup(t.Context(), &idemdv1.LookupRequest{}); err != nil || response == nil {
			t.Error(err)
		}
	})
	bubble(t, script{"Lookup": {away()}}, Options{}, func(t *testing.T, c *Client, _ *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		response, err := c.Lookup(ctx, &idemdv1.LookupRequest{})
		if response != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("answered %v, %v", response, err)
		}
	})
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		for _, call := range []func() error{
			func() error { _, err := c.Reserve(t.Context(), &idemdv1.ReserveRequest{}); return err },
			func() error { _, err := c.Extend(t.Context(), &idemdv1.ExtendRequest{}); return err },
			func() error { _, err := c.Complete(t.Context(), &idemdv1.CompleteRequest{}); return err },
			func() error { _, err := c.Fail(t.Context(), &idemdv1.FailRequest{}); return err },
			func() error { _, err := c.Resolve(t.Context(), &idemdv1.ResolveRequest{}); return err },
		} {
			if err := call(); err != nil {
				t.Error(err)
			}
		}
		if f.sent() != "Reserve Extend Complete Fail Resolve" {
			t.Errorf("sent %s", f.sent())
		}
	})
}

// An outage is repeated by the clock; what may be no answer at all, only a few times in a row.
func TestAnOutageDoesNotUseUpTheTriesOfABrokenAnswer(t *testing.T) {
	broken := status.Error(codes.Internal, "stream terminated")
	for name, c := range map[string]struct {
		answers []any
		ends    bool
	}{
		"after an outage": {[]any{away(), away(), away(), broken, broken, &idemdv1.LookupResponse{}}, false},
		"between outages": {[]any{broken, broken, away(), broken, broken, &idemdv1.LookupResponse{}}, false},
		"in a row":        {[]any{away(), broken, broken, broken, &idemdv1.LookupResponse{}}, true},
	} {
		bubble(t, script{"Lookup": c.answers}, Options{}, func(t *testing.T, client *Client, _ *fake) {
			if _, err := client.Lookup(t.Context(), &idemdv1.LookupRequest{}); (err != nil) != c.ends {
				t.Errorf("%s: answered %v", name, err)
			}
		})
	}
}

func TestAHeldCallHasTheTimeItAskedFor(t *testing.T) {
	bubble(t, script{"Lookup": {after(49*time.Second, &idemdv1.LookupResponse{})}}, Options{}, func(t *testing.T, c *Client, f *fake) {
		_, err := c.Lookup(t.Context(), &idemdv1.LookupRequest{Wait: durationpb.New(50 * time.Second)})
		if err != nil || f.sent() != "Lookup" {
			t.Errorf("%v after %s", err, f.sent())
		}
	})
}

func TestPausesGrowAreSpreadAndNeverEarlierThanTheHint(t *testing.T) {
	spread := map[time.Duration]bool{}
	for range 1000 {
		d := jittered(time.Second)
		if d < time.Second || d > 1250*time.Millisecond {
			t.Fatalf("a pause of 1 s became %v", d)
		}
		spread[d] = true
	}
	if len(spread) < 500 {
		t.Errorf("1000 pauses had %d lengths", len(spread))
	}
	hint := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(10 * time.Second)})
	s := script{"Lookup": {away(), away(), refusal(codes.Unavailable, Draining, hint), &idemdv1.LookupResponse{}}}
	bubble(t, s, Options{}, func(t *testing.T, c *Client, _ *fake) {
		began := time.Now()
		if _, err := c.Lookup(t.Context(), &idemdv1.LookupRequest{}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 10150*time.Millisecond || took > 13*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestAKeyIsDroppedOnlyOnceItsOutcomeIsCertain(t *testing.T) {
	ended := endedBy(canceled(), nil)
	for name, c := range map[string]struct {
		err  error
		keep bool
	}{
		"success":                {nil, false},
		"refused for good":       {&FinalError{Err: errBank}, false},
		"refused, not recorded":  {&FinalError{Err: errBank, Answer: Answer{Unrecorded: errBank}}, true},
		"another operation's":    {&Error{Reason: FingerprintMismatch}, false},
		"not a key":              {&Error{Reason: KeyInvalid}, false},
		"in progress":            {&InProgressError{}, true},
		"unresolved":             {&UnresolvedError{}, true},
		"not executed":           {&NotExecutedError{Err: errBank}, true},
		"the daemon is away":     {&Error{Code: codes.Unavailable, Reason: StoreUnavailable}, true},
		"a timeout":              {&Error{Code: codes.DeadlineExceeded}, true},
		"the caller hung up":     {ended, true},
		"it may have expired":    {&Error{Reason: KeyMayHaveExpired}, true},
		"something else":         {errors.New("?"), true},
		"wrapped":                {fmt.Errorf("paying: %w", &FinalError{}), false},
		"unknown, for a misuse":  {&UnresolvedError{Err: &Error{Reason: FingerprintMismatch}}, true},
		"final, of what may be":  {&FinalError{Err: Final(fmt.Errorf("x: %w", &UnresolvedError{}))}, false},
		"final, and more":        {errors.Join(fmt.Errorf("x: %w", &FinalError{}), errBank), false},
		"one of several keeps":   {errors.Join(&FinalError{}, &InProgressError{}), true},
		"a nil pointer":          {(*FinalError)(nil), true},
		"another nil pointer":    {fmt.Errorf("x: %w", (*Error)(nil)), true},
		"a third nil pointer":    {(*UnresolvedError)(nil), true},
		"not executed, in final": {&NotExecutedError{Err: &FinalError{}}, true},
	} {
		if got := KeepKey(c.err); got != c.keep {
			t.Errorf("%s: keep the key: %v", name, got)
		}
	}
	if !errors.Is(ended, context.Canceled) || ended.Code != codes.Canceled {
		t.Errorf("the end of a context is read as %#v", ended)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errBank)
	return ctx
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for text, err := range map[string]error{
		`idemd: in progress: attempt 2 of "pod-1"; repeat with the same key after 1s`:                               &InProgressError{Attempt: 2, Owner: "pod-1", RetryAfter: time.Second},
		`idemd: unresolved: attempt 2 of "pod-1" may have been executed; find out, or repeat with the same key`:     &UnresolvedError{Unresolved: Unresolved{Attempt: 2, Owner: "pod-1"}},
		`idemd: unresolved: attempt 0 of "" may have been executed; find out, or repeat with the same key: timeout`: &UnresolvedError{Err: errors.New("timeout")},
		"idemd: refused for good by attempt 3 (status 402)":                                                         &FinalError{Answer: Answer{Attempt: 3, Result: &Result{Status: 402}}},
		"idemd: refused for good: card expired":                                                                     &FinalError{Err: errors.New("card expired")},
		"idemd: not executed, repeat with the same key: offline":                                                    &NotExecutedError{Err: errors.New("offline")},
		"idemd: not executed, repeat with the same key":                                                             &NotExecutedError{},
		"idemd: refused for good by attempt 0 (status 0)":                                                           &FinalError{},
		"idemd: Unavailable: connection refused":                                                                    errorOf(away()),
		"idemd: Canceled: context canceled; before: refused":                                                        endedBy(canceled(), &Error{Message: "refused"}),
	} {
		if err.Error() != text {
			t.Errorf("%T says %q, want %q", err, err.Error(), text)
		}
	}
	if !errors.Is(endedBy(canceled(), nil), errBank) {
		t.Error("the cause of a context's end is lost")
	}
}

// docs/client.md tells people what KeepKey tells machines.
func TestThePageKeepsTheKeyWhereKeepKeyDoes(t *testing.T) {
	page, err := os.ReadFile("../../../docs/client.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string][]error{
		"nil":                          {nil},
		"*FinalError":                  {&FinalError{Err: errBank}, &FinalError{}},
		"*FinalError, Unrecorded":      {&FinalError{Err: errBank, Answer: Answer{Unrecorded: errBank}}},
		"*NotExecutedError":            {&NotExecutedError{Err: errBank}},
		"*InProgressError":             {&InProgressError{}},
		"*UnresolvedError":             {&UnresolvedError{}, &UnresolvedError{Err: errBank}},
		"*Error, FINGERPRINT_MISMATCH": {&Error{Code: codes.FailedPrecondition, Reason: FingerprintMismatch}},
		"*Error, KEY_INVALID":          {&Error{Code: codes.InvalidArgument, Reason: KeyInvalid}},
		"*Error, KEY_MAY_HAVE_EXPIRED": {&Error{Code: codes.FailedPrecondition, Reason: KeyMayHaveExpired}},
		"*Error, another invalid argument": {
			&Error{Code: codes.InvalidArgument, Reason: TenantInvalid}, &Error{Code: codes.InvalidArgument, Reason: DurationOutOfRange},
		},
		"*Error, UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED and all others": {
			errorOf(away()), endedBy(canceled(), nil), &Error{Code: codes.DeadlineExceeded}, &Error{Code: codes.Internal},
			&Error{Code: codes.DataLoss, Reason: RecordUnreadable},
		},
	}
	_, section, _ := strings.Cut(string(page), "\n## Errors, and what becomes of the key\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Do returns") {
			continue
		}
		rows++
		errs, known := examples[strings.TrimSpace(cells[1])]
		if !known {
			t.Errorf("nobody knows the row %q", cells[1])
		}
		for _, err := range errs {
			if keep := strings.HasPrefix(strings.TrimSpace(cells[3]), "yes"); KeepKey(err) != keep {
				t.Errorf("%v: the page says %q", err, cells[3])
			}
		}
	}
	if rows != len(examples) {
		t.Errorf("the page has %d rows, want %d", rows, len(examples))
	}
}

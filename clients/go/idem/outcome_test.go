package idem

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

var errBank = errors.New("the bank says no")

func TestWhatFnReturnsIsToldByItsMode(t *testing.T) {
	const (
		done      = idemdv1.FailureKind_FAILURE_KIND_UNSPECIFIED
		retryable = idemdv1.FailureKind_FAILURE_KIND_RETRYABLE
		final     = idemdv1.FailureKind_FAILURE_KIND_FINAL
		unknown   = idemdv1.FailureKind_FAILURE_KIND_UNKNOWN
	)
	nested := &FinalError{Err: Final(errBank)}
	for name, c := range map[string]struct {
		err                     error
		external, transactional idemdv1.FailureKind
	}{
		"nothing":                  {nil, done, done},
		"undeclared":               {errBank, unknown, retryable},
		"a context's end":          {context.Canceled, unknown, retryable},
		"not executed":             {NotExecuted(errBank), retryable, retryable},
		"final":                    {Final(errBank), final, final},
		"unknown":                  {Unknown(errBank), unknown, unknown},
		"declared within":          {fmt.Errorf("charging: %w", Final(errBank)), final, final},
		"declared twice":           {errors.Join(Final(errBank), Final(errBank)), final, final},
		"by halves":                {errors.Join(errBank, NotExecuted(errBank)), unknown, retryable},
		"by halves, final":         {fmt.Errorf("%w: %w", Final(errBank), errBank), unknown, unknown},
		"contradictory":            {errors.Join(NotExecuted(errBank), Final(errBank)), unknown, unknown},
		"one may have happened":    {errors.Join(NotExecuted(errBank), Unknown(errBank)), unknown, unknown},
		"its cleanup not executed": {fmt.Errorf("%w (cleanup: %w)", Unknown(errBank), NotExecuted(errBank)), unknown, unknown},
		"deep in one of several":   {errors.Join(NotExecuted(errBank), fmt.Errorf("x: %w", errors.Join(Unknown(errBank)))), unknown, unknown},
		"beside another operation's": {
			errors.Join(&UnresolvedError{Err: NotExecuted(errBank)}, NotExecuted(errBank)), unknown, retryable,
		},
		"about all of several":      {NotExecuted(errors.Join(errBank, Unknown(errBank))), retryable, retryable},
		"the outermost holds":       {Unknown(NotExecuted(errBank)), unknown, unknown},
		"another operation's":       {nested, unknown, retryable},
		"another operation's, deep": {fmt.Errorf("first pay: %w", nested), unknown, retryable},
		"declared about another's":  {NotExecuted(nested), retryable, retryable},
	} {
		for mode, want := range map[Mode]idemdv1.FailureKind{External: c.external, Transactional: c.transactional} {
			bubble(t, nil, Options{}, func(t *testing.T, client *Client, f *fake) {
				op := operation()
				op.Mode = mode
				answer, err := client.Do(t.Context(), op, returns(body("said"), c.err))
				if told := requests[*idemdv1.CompleteRequest](f); (len(told) == 1) != (want == done) {
					t.Errorf("%s, %v: sent %s", name, mode, f.sent())
				}
				if want == done {
					if err != nil || answer == nil {
						t.Errorf("%s: answered %v", name, err)
					}
					return
				}
				told := requests[*idemdv1.FailRequest](f)
				if len(told) != 1 || told[0].GetKind() != want || string(told[0].GetResult().GetBody()) != "said" {
					t.Errorf("%s, %v: told %v, want %v", name, mode, told, want)
				}
				mustBeErrorOf(t, name, err, want, c.err)
			})
		}
	}
}

func TestWhetherAnErrorDeclaresItselfCanBeAsked(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                {nil, false},
		"another error":          {errBank, false},
		"declared":               {Unknown(errBank), true},
		"within":                 {fmt.Errorf("x: %w", Final(errBank)), true},
		"one of several":         {errors.Join(errBank, NotExecuted(errBank)), true},
		"none of several":        {errors.Join(errBank, errBank), false},
		"another operation's":    {fmt.Errorf("x: %w", &FinalError{Err: Final(errBank)}), false},
		"about another's ending": {NotExecuted(&UnresolvedError{}), true},
	} {
		if got := Declared(c.err); got != c.want {
			t.Errorf("%s: declared %v", name, got)
		}
	}
}

// mustBeErrorOf checks what Do returns for a failure of its own.
func mustBeErrorOf(t *testing.T, name string, err error, kind idemdv1.FailureKind, cause error) {
	t.Helper()
	var got error
	keep := true
	switch kind {
	case idemdv1.FailureKind_FAILURE_KIND_RETRYABLE:
		var e *NotExecutedError
		if errors.As(err, &e) && e.Attempt == 1 {
			got = e.Err
		}
	case idemdv1.FailureKind_FAILURE_KIND_FINAL:
		var e *FinalError
		if errors.As(err, &e) && !e.Replayed && string(e.Result.GetBody()) == "said" {
			got, keep = e.Err, false
		}
	default:
		var e *UnresolvedError
		if errors.As(err, &e) && e.Attempt == 1 && e.Version == 2 && e.Key == "charge-42" {
			got = e.Err
		}
	}
	if !errors.Is(got, cause) || !errors.Is(err, cause) || KeepKey(err) != keep {
		t.Errorf("%s: answered %#v (keep the key: %v)", name, err, KeepKey(err))
	}
}

func TestARefusalWithoutAResultStoresItsText(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	for text, want := range map[string]string{"card expired": "card expired", long: long[:4096]} {
		bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
			_, err := c.Do(t.Context(), operation(), returns(nil, Final(errors.New(text))))
			told := requests[*idemdv1.FailRequest](f)[0].GetResult()
			if string(told.GetBody()) != want || told.GetContentType() != "text/plain; charset=utf-8" || !utf8.Valid(told.GetBody()) {
				t.Errorf("told %v", told)
			}
			var refused *FinalError
			if !errors.As(err, &refused) || string(refused.Result.GetBody()) != want {
				t.Errorf("answered %v", err)
			}
		})
	}
	if cut := string(textResult("x" + long).GetBody()); !utf8.ValidString(cut) || len(cut) != 4095 {
		t.Errorf("a character was cut in two: %d bytes", len(cut))
	}
	if raw := textResult(strings.Repeat("\xff", 5000)).GetBody(); len(raw) < 4096-utf8.UTFMax {
		t.Errorf("of text that is not UTF-8 %d bytes are left", len(raw))
	}
}

func TestOnlyWhatFnSaysIsStored(t *testing.T) {
	for _, err := range []error{errors.New("password=hunter2"), NotExecuted(errBank), Unknown(errBank)} {
		bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
			_, _ = c.Do(t.Context(), operation(), returns(nil, err))
			if told := requests[*idemdv1.FailRequest](f)[0]; told.GetResult() != nil {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestNothingDeclaredAboutNoErrorIsNoError(t *testing.T) {
	if NotExecuted(nil) != nil || Final(nil) != nil || Unknown(nil) != nil {
		t.Error("an error was made of nil")
	}
}

func TestAPanicIsRecordedAsUnknownAndGoesOn(t *testing.T) {
	for _, mode := range []Mode{External, Transactional} {
		bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
			op := operation()
			op.Mode = mode
			func() {
				defer func() {
					if got := recover(); got != "boom" {
						t.Errorf("the panic ended as %v", got)
					}
				}()
				_, _ = c.Do(t.Context(), op, func(context.Context, *Grant) (*Result, error) { panic("boom") })
			}()
			told := requests[*idemdv1.FailRequest](f)
			if len(told) != 1 || told[0].GetKind() != idemdv1.FailureKind_FAILURE_KIND_UNKNOWN || told[0].GetResult() != nil {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestAnExitOfTheGoroutineIsRecordedAsUnknown(t *testing.T) {
	bubble(t, nil, Options{}, func(t *testing.T, c *Client, f *fake) {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = c.Do(t.Context(), operation(), func(context.Context, *Grant) (*Result, error) {
				runtime.Goexit()
				return nil, nil
			})
			t.Error("Do returned")
		}()
		<-ended
		if told := requests[*idemdv1.FailRequest](f); len(told) != 1 || told[0].GetKind() != idemdv1.FailureKind_FAILURE_KIND_UNKNOWN {
			t.Errorf("told %v", told)
		}
	})
}
